"""Completions of tiny Hugging Face models, of which every sequence can be enumerated."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, product

import pytest
import torch
from problems import chi_square, seeded
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

import swor
from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)

SYMBOLS, LENGTH, DRAWS = 5, 3, 4000
PAD = 4
PROMPTS = torch.tensor([[1, 2, 3], [PAD, PAD, 2]])
LEFT = torch.tensor([[1, 1, 1], [0, 0, 1]])
NAMES = ["gpt2", "llama", "llama_two_ends", "t5"]


@cache
def tiny(name, dropout=0.0):
    """A random model with clear preferences, in float64."""
    common = {"vocab_size": SYMBOLS, "bos_token_id": 1, "pad_token_id": PAD}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        if name == "gpt2":
            sizes = {"n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
            sizes |= {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
            config = GPT2Config(eos_token_id=0, initializer_range=0.5, **sizes, **common)
            model = GPT2LMHeadModel(config)
        elif name.startswith("llama"):
            sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
            sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1}
            ends = [0, 3] if name == "llama_two_ends" else 0
            config = LlamaConfig(eos_token_id=ends, initializer_range=0.5, **sizes, **common)
            model = LlamaForCausalLM(config)
        else:
            sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
            sizes |= {"eos_token_id": 0, "decoder_start_token_id": PAD, "dropout_rate": 0.0}
            model = T5ForConditionalGeneration(T5Config(**sizes, **common))
    return model.double().eval()


def masks(name):
    """Prompts and their mask: a decoder's on the left, an encoder's on the right."""
    return (PROMPTS.flip(-1), LEFT.flip(-1)) if name == "t5" else (PROMPTS, LEFT)


def ends(model):
    end = model.generation_config.eos_token_id
    return tuple(end) if isinstance(end, list) else (end,)


@cache
def sequences(name):
    """Every completion, filled up with padding, (n, LENGTH)."""
    stops = ends(tiny(name))
    found = set()
    for x in product(range(SYMBOLS), repeat=LENGTH):
        stop = next((t for t in range(LENGTH) if x[t] in stops), LENGTH)
        found.add(x[: stop + 1] + (PAD,) * (LENGTH - stop - 1))
    return sorted(found)


@cache
def log_probs(name, which, temperature=1.0):
    """The log-probability of every completion of a prompt: plain passes, no cache, no padding."""
    model, stops = tiny(name), ends(tiny(name))
    ids, mask = masks(name)
    prompt = ids[which][mask[which].bool()].tolist()
    out = {}
    for x in sequences(name):
        total = torch.zeros((), dtype=torch.float64)
        for t, symbol in enumerate(x):
            if name == "t5":
                prefix = torch.tensor([[PAD, *x[:t]]])
                given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": prefix}
            else:
                given = {"input_ids": torch.tensor([prompt + list(x[:t])])}
            with torch.no_grad():
                logits = model(**given, use_cache=False).logits[0, -1] / temperature
            total = total + logits.log_softmax(-1)[symbol]
            if symbol in stops:
                break
        out[x] = total
    return out


def rows(value):
    return [tuple(x) for x in value.tolist()]


def many(name, which):
    ids, mask = masks(name)
    return ids[which].expand(DRAWS, -1), mask[which].expand(DRAWS, -1)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_sets_of_completions_have_their_law(name, which):
    ids, mask = many(name, which)
    law = log_probs(name, which)
    with torch.no_grad():
        sample = sample_completions(
            tiny(name), ids, mask, k=2, max_new_tokens=LENGTH, generator=seeded()
        )
    observed = Counter(frozenset(rows(x)) for x in sample.value)
    pairs = list(combinations(law, 2))
    values = torch.stack([torch.stack([law[a], law[b]]) for a, b in pairs])
    expected = dict(
        zip(map(frozenset, pairs), swor.log_prob_set(values).exp().tolist(), strict=True)
    )
    assert chi_square(observed, expected, DRAWS) > 1e-3
    assert abs(sum(p.exp() for p in law.values()) - 1) < 1e-12


@pytest.mark.parametrize("small", [256, 1])  # 1: symbols race in blocks
@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_and_the_mass_outside(name, k, small, monkeypatch):
    monkeypatch.setattr("swor.samplers.tree_race.SMALL", small)
    ids, mask = masks(name)
    with torch.no_grad():
        sample = sample_completions(
            tiny(name), ids, mask, k=k, max_new_tokens=LENGTH, generator=seeded()
        )
    assert sample.value.shape == (2, k, LENGTH) and sample.scheme == "without_replacement"
    for which in (0, 1):
        law = log_probs(name, which)
        drawn = rows(sample.value[which])
        assert len(set(drawn)) == k
        exact = torch.stack([law[x] for x in drawn])
        assert torch.allclose(sample.log_p[which], exact, rtol=0, atol=1e-12)
        others = torch.stack([p for x, p in law.items() if x not in drawn]).logsumexp(0)
        assert torch.allclose(sample.log_rest[which], others, rtol=0, atol=1e-10)


@pytest.mark.parametrize("small", [256, 1])
def test_order_and_kappa_have_their_law_also_in_blocks(small, monkeypatch):
    monkeypatch.setattr("swor.samplers.tree_race.SMALL", small)
    ids, mask = many("gpt2", 0)
    law = log_probs("gpt2", 0)
    with torch.no_grad():
        sample = sample_completions(
            tiny("gpt2"), ids, mask, k=2, max_new_tokens=LENGTH, generator=seeded(1)
        )
    first = Counter(rows(sample.value[:, 0]))
    assert chi_square(first, {x: float(p.exp()) for x, p in law.items()}, DRAWS) > 1e-3
    likeliest = max(law, key=law.get)
    second = Counter(b for a, b in map(rows, sample.value) if a == likeliest)
    rest = {x: float(p.exp() / -torch.expm1(law[likeliest])) for x, p in law.items()}
    del rest[likeliest]
    assert chi_square(second, rest, second.total()) > 1e-3
    remaining = 1 - sample.log_p[:, 0].exp()
    expected = (1 + 1 / remaining + torch.exp(-sample.log_rest)).mean()
    times = torch.exp(-sample.kappa)
    assert abs((times.mean() - expected) / (times.std() / DRAWS**0.5)) < 4


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_unbiased(name):
    """Every set of two completions, weighted by its probability: the exact gradient."""
    model, which = tiny(name), 1
    ids, mask = (x[which : which + 1] for x in masks(name))
    all_values = torch.tensor(sequences(name))
    parameter = model.lm_head.weight
    log_p = completion_log_probs(model, ids, all_values.unsqueeze(0), attention_mask=mask)[0]
    cost = torch.randn(len(all_values), generator=seeded(), dtype=torch.float64)
    (exact,) = torch.autograd.grad((log_p.exp() * cost).sum(), parameter, retain_graph=True)
    pairs = torch.combinations(torch.arange(len(all_values)), 2)
    sample = swor.Sample(all_values[pairs], log_p[pairs])
    loss = swor.unordered_set(sample).loss(cost[pairs])
    chance = swor.log_prob_set(log_p[pairs]).exp().detach()
    (mean,) = torch.autograd.grad((chance * loss).sum(), parameter)
    tolerance = 1e-10 if name == "gpt2" else 1e-6  # the others normalise in float32
    assert torch.allclose(mean, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("chunk", [None, 1, 2])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_with_gradient(name, checkpointing, chunk):
    model = tiny(name)
    ids, mask = masks(name)
    value = torch.tensor(sequences(name))[[0, 7, 30]].expand(2, 3, LENGTH)
    exact = torch.stack(
        [torch.stack([log_probs(name, i)[x] for x in rows(value[i])]) for i in (0, 1)]
    )
    parameters = [p for p in model.parameters() if p.requires_grad]
    plain = completion_log_probs(model, ids, value, attention_mask=mask)
    assert torch.allclose(plain, exact, rtol=0, atol=1e-12)
    expected = torch.autograd.grad(plain.square().sum(), parameters)
    try:
        if checkpointing:
            model.train()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        log_p = completion_log_probs(model, ids, value, attention_mask=mask, chunk=chunk)
        assert torch.allclose(log_p, exact, rtol=0, atol=1e-12)
        found = torch.autograd.grad(log_p.square().sum(), parameters)
    finally:
        model.gradient_checkpointing_disable()
        model.eval()
    tolerance = 1e-10 if name == "gpt2" else 1e-5  # the others normalise in float32
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def test_samples_carry_gradient_and_leave_the_mode_alone():
    model = tiny("gpt2", dropout=0.5)
    ids, mask = masks("gpt2")
    model.train()
    model.transformer.h[0].eval()  # frozen by the user
    try:
        sample = sample_completions(model, ids, mask, k=3, max_new_tokens=LENGTH)
        assert model.training and not model.transformer.h[0].training
    finally:
        model.eval()
    exact = [[log_probs("gpt2", i)[x] for x in rows(sample.value[i])] for i in (0, 1)]
    assert torch.allclose(sample.log_p, torch.tensor(exact, dtype=torch.float64), atol=1e-12)
    assert torch.autograd.grad(sample.log_p.sum(), model.lm_head.weight)[0].abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_independent_completions(name):
    ids, mask = many(name, 1)
    with torch.no_grad():
        sample = ancestral_completions(
            tiny(name), ids, mask, k=2, max_new_tokens=LENGTH, generator=seeded()
        )
    law = {x: float(p.exp()) for x, p in log_probs(name, 1).items()}
    assert chi_square(Counter(rows(sample.value.flatten(0, 1))), law, 2 * DRAWS) > 1e-3
    assert swor.reinforce(sample).weight.shape == (DRAWS, 2)


@pytest.mark.parametrize("name", NAMES)
def test_beam_search_over_all_completions_ranks_them(name):
    ids, mask = masks(name)
    sample = beam_completions(tiny(name), ids, mask, k=len(sequences(name)), max_new_tokens=LENGTH)
    for which in (0, 1):
        law = log_probs(name, which)
        assert rows(sample.value[which])[:9] == sorted(law, key=law.get, reverse=True)[:9]
    assert swor.risk(sample).weight.shape == sample.log_p.shape


def test_a_processor_defines_the_distribution():
    ids, mask = many("gpt2", 0)
    law = log_probs("gpt2", 0, temperature=0.5)
    warmer = LogitsProcessorList([TemperatureLogitsWarper(0.5)])
    sample = sample_completions(
        tiny("gpt2"), ids, mask, k=1, max_new_tokens=LENGTH, logits_processor=warmer,
        generator=seeded(),
    )  # fmt: skip
    observed = Counter(rows(sample.value[:, 0]))
    assert chi_square(observed, {x: float(p.exp()) for x, p in law.items()}, DRAWS) > 1e-3
    exact = torch.stack([law[x] for x in rows(sample.value[:50, 0])])
    assert torch.allclose(sample.log_p[:50, 0], exact, rtol=0, atol=1e-12)
    log_p = completion_log_probs(tiny("gpt2"), ids[:1], sample.value[:1], attention_mask=mask[:1])
    assert abs(log_p - log_probs("gpt2", 0)[rows(sample.value[0])[0]]) < 1e-12


def test_processors_that_mask_leave_impossible_completions_out():
    ids, mask = masks("gpt2")
    nucleus = LogitsProcessorList([TopPLogitsWarper(0.6)])
    sample = sample_completions(
        tiny("gpt2"), ids, mask, k=2, max_new_tokens=LENGTH, logits_processor=nucleus
    )
    assert sample.log_p.isfinite().all()

    def no_twos(tokens, logits):
        """After a 2 nothing would be left; but there is no 2."""
        logits = logits.index_fill(-1, torch.tensor([2]), -torch.inf)
        return logits.masked_fill((tokens[:, 3:] == 2).any(-1, keepdim=True), -torch.inf)

    most = sum(2 not in x for x in sequences("gpt2"))
    sample = sample_completions(
        tiny("gpt2"), ids, mask, k=most, max_new_tokens=LENGTH, logits_processor=no_twos
    )
    assert not (sample.value == 2).any() and (sample.log_rest == -torch.inf).all()
    with pytest.raises(ValueError, match=f"only {most} sequences of positive probability"):
        sample_completions(
            tiny("gpt2"), ids, mask, k=most + 1, max_new_tokens=LENGTH, logits_processor=no_twos
        )


class Evaluations:
    """Counts the rows that a model evaluates."""

    def __init__(self, model):
        self.model, self.rows = model, []

    def __enter__(self):
        self.hook = self.model.register_forward_pre_hook(self._count, with_kwargs=True)
        return self

    def _count(self, _, args, given):
        self.rows.append(tuple(given["input_ids"].shape))

    def __exit__(self, *error):
        self.hook.remove()


def test_prompts_are_encoded_once_and_ended_completions_cost_nothing():
    model, (ids, mask) = tiny("gpt2"), masks("gpt2")
    with torch.no_grad(), Evaluations(model) as seen:
        sample = sample_completions(model, ids, mask, k=8, max_new_tokens=6, generator=seeded(3))
    assert seen.rows[0] == (2, 3)
    ended = (sample.value[..., :-1] == 0).any(-1).sum()
    assert ended > 0 and all(columns == 1 for _, columns in seen.rows[1:])
    assert seen.rows[-1][0] <= 16 - int((sample.value[..., :4] == 0).any(-1).sum())

    def end_now(tokens, logits):
        return logits.index_fill(-1, torch.arange(1, SYMBOLS), -torch.inf)

    with torch.no_grad(), Evaluations(model) as seen:
        sample_completions(model, ids, mask, k=1, max_new_tokens=50, logits_processor=end_now)
    assert seen.rows == [(2, 3)]


def test_the_same_seed_gives_the_same_completions():
    def draw(seed):
        ids, mask = masks("llama")
        return sample_completions(
            tiny("llama"), ids, mask, k=4, max_new_tokens=LENGTH, generator=seeded(seed)
        ).value

    assert torch.equal(draw(0), draw(0)) and not torch.equal(draw(0), draw(1))


def test_completions_of_one_length_when_nothing_ends_them():
    ids, mask = masks("gpt2")
    sample = sample_completions(tiny("gpt2"), ids, mask, k=9, max_new_tokens=2, eos_token_id=[])
    assert sample.value.shape == (2, 9, 2)
    log_p = completion_log_probs(
        tiny("gpt2"), ids, sample.value, attention_mask=mask, eos_token_id=[]
    )
    assert torch.allclose(log_p, sample.log_p)
    alike = sample_completions(tiny("gpt2"), ids, mask, k=4, max_new_tokens=2, pad_token_id=0)
    assert not (alike.value == PAD).all()


def mask_everything(tokens, logits):
    return torch.full_like(logits, -torch.inf)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens is 0; expected at least 1"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens is 2.0; expected an integer"),
        ({"k": 0}, ValueError, "k is 0; expected at least 1"),
        ({"k": 85}, ValueError, "only 21 outcomes"),
        ({"input_ids": torch.zeros(2, 0).long(), "attention_mask": None}, ValueError, "is empty"),
        ({"attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0]])}, ValueError, "prompt 1 is empty"),
        ({"attention_mask": LEFT.flip(-1)}, ValueError, "prompt 1 is padded on the right"),
        (
            {"input_ids": PROMPTS.flip(-1), "attention_mask": None},
            ValueError,
            "prompt 1 is padded on the right",
        ),
        ({"attention_mask": LEFT[:, :2]}, ValueError, "attention_mask has shape"),
        ({"input_ids": PROMPTS.float()}, ValueError, "expected \\(batch, tokens\\) in torch.long"),
        ({"eos_token_id": 77}, ValueError, "eos_token_id is 77, but the model has 5 tokens"),
        ({"logits_processor": mask_everything}, ValueError, "masks every token"),
    ],
)
def test_bad_input(change, error, message):
    given = {"input_ids": PROMPTS, "attention_mask": LEFT, "k": 2, "max_new_tokens": 2} | change
    with pytest.raises(error, match=message):
        sample_completions(tiny("gpt2"), **given)


def test_a_model_without_a_cache():
    config = OpenAIGPTConfig(vocab_size=5, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    model = OpenAIGPTLMHeadModel(config)
    for draw in (sample_completions, ancestral_completions, beam_completions):
        with pytest.raises(TypeError, match="OpenAIGPTLMHeadModel has no cache"):
            draw(model, PROMPTS, LEFT, k=2, max_new_tokens=2)


def test_values_of_another_shape():
    with pytest.raises(ValueError, match="expected token ids"):
        completion_log_probs(tiny("gpt2"), PROMPTS, PROMPTS)
    with pytest.raises(ValueError, match="completions of every prompt"):
        completion_log_probs(
            tiny("gpt2"), PROMPTS, torch.zeros(3, 2, 2).long(), attention_mask=LEFT
        )
    with pytest.raises(ValueError, match="chunk is 0"):
        value = torch.zeros(2, 2, 2).long()
        completion_log_probs(tiny("gpt2"), PROMPTS, value, attention_mask=LEFT, chunk=0)
