"""Completions of models with adapters (PEFT) are those of the merged model, with gradient to the adapter."""

from __future__ import annotations

import copy

import pytest
import torch
from problems import seeded
from tiny_models import LENGTH, PROMPTS, masks, rows, sequences, tiny

import swor
from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)

peft = pytest.importorskip("peft")

TARGETS = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj"], "t5": ["q", "v"]}
TASKS = {"gpt2": "CAUSAL_LM", "llama": "CAUSAL_LM", "t5": "SEQ_2_SEQ_LM"}


def with_adapter(name, *, task=True, kind=peft.LoraConfig, **given):
    """A tiny model with an adapter that changes what it says."""
    base = copy.deepcopy(tiny(name))
    config = {"task_type": TASKS[name] if task else None}
    if kind is peft.LoraConfig:
        config |= {"r": 2, "lora_alpha": 8, "init_lora_weights": False}
        config |= {"target_modules": TARGETS[name], "fan_in_fan_out": name == "gpt2"}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return peft.get_peft_model(base, kind(**config | given)).double().eval()


def merged(model):
    return copy.deepcopy(model).merge_and_unload()


def every(name):
    """All completions of the first prompt, (1, n, LENGTH), and the prompt with its mask."""
    ids, mask = (x[:1] for x in masks(name))
    return torch.tensor(sequences(name)).unsqueeze(0), ids, mask


@pytest.mark.parametrize("task", [True, False])
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("draw", [sample_completions, ancestral_completions, beam_completions])
def test_an_adapter_changes_the_distribution_as_its_merged_weights_do(draw, name, task):
    model, (ids, mask) = with_adapter(name, task=task), masks(name)
    random = {} if draw is beam_completions else {"generator": seeded()}
    sample = draw(model, ids, mask, k=3, max_new_tokens=LENGTH, **random)
    random = {} if draw is beam_completions else {"generator": seeded()}
    plain = draw(merged(model), ids, mask, k=3, max_new_tokens=LENGTH, **random)
    assert torch.equal(sample.value, plain.value)
    assert torch.allclose(sample.log_p, plain.log_p, rtol=0, atol=1e-12)
    bare = completion_log_probs(tiny(name), ids, sample.value, attention_mask=mask)
    assert not torch.allclose(sample.log_p, bare, atol=1e-3)


@pytest.mark.parametrize("name", TARGETS)
def test_gradients_reach_the_adapter_alone_and_are_unbiased(name):
    """Every set of two completions, weighted by its probability: the exact gradient."""
    model, (values, ids, mask) = with_adapter(name), every(name)
    log_p = completion_log_probs(model, ids, values, attention_mask=mask)[0]
    assert abs(log_p.exp().sum() - 1) < 1e-12
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora" in n for n in trained)
    cost = torch.randn(len(log_p), generator=seeded(), dtype=torch.float64)
    pairs = torch.combinations(torch.arange(len(log_p)), 2)
    loss = swor.unordered_set(
        swor.Sample(values[0][pairs], log_p[pairs], scheme="without_replacement")
    ).loss(cost[pairs])
    chance = swor.log_prob_set(log_p[pairs]).exp().detach()
    parameters = list(trained.values())
    exact = torch.autograd.grad((log_p.exp() * cost).sum(), parameters, retain_graph=True)
    found = torch.autograd.grad((chance * loss).sum(), parameters)
    tolerance = 1e-10 if name == "gpt2" else 1e-6  # the others normalise in float32
    for a, b in zip(found, exact, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=tolerance)
    assert max(g.abs().max() for g in exact) > 1e-3


def test_adapters_with_gradient_checkpointing():
    model, (values, ids, mask) = with_adapter("llama"), every("llama")
    plain = completion_log_probs(model, ids, values, attention_mask=mask)
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = torch.autograd.grad(plain.square().sum(), parameters)
    model.train()
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    log_p = completion_log_probs(model, ids, values, attention_mask=mask)
    assert torch.allclose(log_p, plain, rtol=0, atol=1e-12)
    found = torch.autograd.grad(log_p.square().sum(), parameters)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_disabled_adapter_leaves_the_base_model():
    model, (ids, mask) = with_adapter("llama"), masks("llama")
    with model.disable_adapter(), torch.no_grad():
        found = sample_completions(model, ids, mask, k=3, max_new_tokens=LENGTH, generator=seeded())
        expected = sample_completions(
            tiny("llama"), ids, mask, k=3, max_new_tokens=LENGTH, generator=seeded()
        )
    assert torch.equal(found.value, expected.value)
    assert torch.allclose(found.log_p, expected.log_p, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "kind, given, message",
    [
        (peft.PrefixTuningConfig, {"num_virtual_tokens": 2}, "of type PREFIX_TUNING"),
        (peft.PromptTuningConfig, {"num_virtual_tokens": 2}, "of type PROMPT_TUNING"),
        (peft.LoraConfig, {"alora_invocation_tokens": [2]}, "has alora_invocation_tokens"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_adapters_that_need_the_whole_input_in_every_call(kind, given, message):
    model = with_adapter("gpt2", kind=kind, **given)
    for draw in (sample_completions, ancestral_completions, beam_completions):
        with pytest.raises(TypeError, match=message):
            draw(model, PROMPTS, k=2, max_new_tokens=2)


@pytest.mark.slow
@torch.no_grad()
def test_compiled_models():
    compiled, (ids, mask) = torch.compile(tiny("gpt2"), backend="eager"), masks("gpt2")
    drawn, plain = (
        sample_completions(model, ids, mask, k=4, max_new_tokens=LENGTH, generator=seeded())
        for model in (compiled, tiny("gpt2"))
    )
    assert rows(drawn.value[0]) == rows(plain.value[0])
    assert torch.allclose(drawn.log_p, plain.log_p, rtol=0, atol=1e-12)
