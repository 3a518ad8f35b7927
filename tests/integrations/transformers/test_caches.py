"""The cache: beams that continue their parents stay where they are; every kind of layer is followed."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from problems import seeded
from tiny_models import LEFT, LENGTH, PROMPTS, masks, rows, tiny
from transformers import AutoConfig, AutoModelForCausalLM

from swor.integrations.transformers import _caches as caches
from swor.integrations.transformers import (
    ancestral_completions,
    completion_log_probs,
    sample_completions,
)

HYBRIDS = {
    "sliding window": {"model_type": "mistral", "sliding_window": 2},
    "convolution": {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
    "recurrent": {
        "model_type": "qwen3_next",
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
        "num_experts": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
        "num_experts_per_tok": 1,
    },
}


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_as_many_beams_as_possible_stay_in_their_row(before, after):
    for parents in product(range(before), repeat=after):
        row, source = caches.arrange(torch.tensor(parents, dtype=torch.long), before)
        assert sorted(row.tolist()) == list(range(after))
        assert [source[r] for r in row] == list(parents)
        stays = sum(int(source[r]) == r for r in range(after))
        assert stays == len({p for p in parents if p < after})


class Copies:
    """Counts the rows of the cache that are copied from one place to another."""

    def __init__(self, monkeypatch):
        self.moved, self.grown, move, keep = 0, 0, caches._move, caches.keep

        def count_moved(layer, source, moved):
            self.moved += len(moved)
            move(layer, source, moved)

        def count_grown(cache, source, rows):
            self.grown += len(source) > rows
            keep(cache, source, rows)

        monkeypatch.setattr(caches, "_move", count_moved)
        monkeypatch.setattr("swor.integrations.transformers._policy.keep", count_grown)


@torch.no_grad()
def test_nothing_is_copied_where_every_completion_has_one_child(monkeypatch):
    copies, (ids, mask) = Copies(monkeypatch), masks("llama")
    ancestral_completions(tiny("llama"), ids, mask, k=4, max_new_tokens=8, eos_token_id=[])
    assert copies.grown == 1 and copies.moved == 0


@torch.no_grad()
def test_beams_that_only_change_their_order_are_not_copied(monkeypatch):
    """Only beams of which two continue the same one: nearly all are re-ordered in every step."""
    copies, reordered = Copies(monkeypatch), []
    arrange = caches.arrange

    def count_reordered(parents, before):
        if len(parents) == before:
            reordered.append(int((parents != torch.arange(before)).sum()))
        return arrange(parents, before)

    monkeypatch.setattr("swor.integrations.transformers._policy.arrange", count_reordered)
    sample_completions(
        tiny("llama"), PROMPTS, LEFT, k=8, max_new_tokens=12, eos_token_id=[], generator=seeded()
    )
    layers = 2
    assert 0 < copies.moved < layers * sum(reordered) / 2


def hybrid(name):
    sizes = {"vocab_size": 7, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    special = {"bos_token_id": 1, "eos_token_id": 0, "pad_token_id": 6, "initializer_range": 0.5}
    given = dict(HYBRIDS[name])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(given.pop("model_type"), **sizes | special | given)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_that_remember_otherwise(name):
    """Completions are drawn and scored as by plain passes, with the gradient of those."""
    model, prompt = hybrid(name), torch.tensor([[1, 2, 3, 4]])
    sample = sample_completions(model, prompt, k=6, max_new_tokens=6, generator=seeded(1))
    weights = [p for p in model.parameters() if p.requires_grad]
    plain = torch.stack([score(model, prompt[0].tolist(), x) for x in rows(sample.value[0])])
    exact = torch.autograd.grad(plain.square().sum(), weights, allow_unused=True)
    for chunk in (None, 4):
        log_p = completion_log_probs(model, prompt, sample.value, chunk=chunk)[0]
        assert torch.allclose(log_p, plain, rtol=0, atol=1e-4)
        found = torch.autograd.grad(log_p.square().sum(), weights, allow_unused=True)
        for a, b in zip(found, exact, strict=True):
            if b is not None:
                assert torch.allclose(a, b, rtol=1e-2, atol=1e-2)
    assert torch.allclose(sample.log_p[0], plain, rtol=0, atol=1e-4)


def score(model, prompt, completion):
    """By one pass over prompt and completion, without a cache."""
    end = completion.index(0) + 1 if 0 in completion else len(completion)
    ids = torch.tensor([prompt + list(completion[:end])])
    log_probs = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    steps = range(len(prompt), ids.shape[1])
    return torch.stack([log_probs[t - 1, ids[0, t]] for t in steps]).sum()


def saved_numbers(function):
    """The result, and how many numbers are kept for the backward pass."""
    kept = {}

    def pack(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = function()
    return result, sum(kept.values())


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_chunks_keep_less_for_the_backward_pass_of_a_sample(name):
    model, (ids, mask) = tiny(name), masks(name)
    found = {}
    for chunk in (None, 2):
        found[chunk] = saved_numbers(
            lambda chunk=chunk: sample_completions(
                model, ids, mask, k=16, max_new_tokens=LENGTH, chunk=chunk, generator=seeded()
            )
        )
    (whole, much), (parts, little) = found[None], found[2]
    assert torch.equal(whole.value, parts.value) and little < much / 2
    assert torch.allclose(whole.log_p, parts.log_p, rtol=0, atol=1e-12)
    weight = model.lm_head.weight
    a, b = (torch.autograd.grad(x.log_p.square().sum(), weight)[0] for x in (whole, parts))
    assert torch.allclose(a, b, rtol=1e-8, atol=1e-8)
