"""A logits processor defines the distribution that is sampled."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from problems import chi_square, seeded
from tiny_models import DRAWS, LENGTH, log_probs, many, masks, rows, sequences, tiny
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from swor.integrations.transformers import completion_log_probs, sample_completions
from swor.integrations.transformers._head import Head, steps_of
from swor.integrations.transformers._prompts import Tokens


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


def test_rounding_at_the_border_of_top_k_makes_no_drawn_token_impossible():
    """In bfloat16, the search and the score of a completion round differently."""
    torch.manual_seed(1)
    sizes = {"n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=200, initializer_range=0.15, **sizes, **ends)
    model = GPT2LMHeadModel(config).to(torch.bfloat16).eval()
    prompts = torch.randint(2, 200, (4, 25))
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.9), TopKLogitsWarper(5)])
    given = {"max_new_tokens": 16, "logits_processor": processors}
    cut = 0
    for seed in range(3):
        sample = sample_completions(model, prompts, k=8, **given, generator=seeded(seed))
        assert sample.log_p.isfinite().all()
        with torch.no_grad():
            found = sample_completions(model, prompts, k=8, **given, generator=seeded(seed))
        assert torch.equal(found.value, sample.value)
        assert (found.log_p - sample.log_p).abs().max() < 1.0
        scores = completion_log_probs(model, prompts, sample.value, logits_processor=processors)
        cut += int(scores.isinf().sum())  # a score by itself is that of the processor
        assert torch.equal(scores[scores.isfinite()], sample.log_p[scores.isfinite()])
    assert cut > 0
    assert torch.autograd.grad(sample.log_p.sum(), model.lm_head.weight)[0].isfinite().all()


def test_a_processor_that_cuts_and_scales_at_once_cannot_be_repaired():
    def processor(tokens, logits):
        return 2 * logits.masked_fill(logits < 1.0, -torch.inf)

    head = Head(None, Tokens((0,), 0), processor=processor)
    head.network = SimpleNamespace(context=lambda tokens, owners: tokens)
    logits, tokens = torch.tensor([[0.9, 1.5, 2.0]]), torch.zeros(1, 0).long()
    owners = torch.zeros(1).long()
    assert head.log_probs(logits, tokens, owners)[0, 0] == -torch.inf
    with pytest.raises(ValueError, match="Give a list of two processors"):
        head.log_probs(logits, tokens, owners, torch.tensor([0]))
    for several in ([processor], [lambda tokens, logits: 2 * logits, TopKLogitsWarper(2)]):
        head.steps = steps_of(several)
        found = head.log_probs(logits, tokens, owners, torch.tensor([1]))
        assert torch.allclose(found, head.log_probs(logits, tokens, owners))
    kept = head.log_probs(logits, tokens, owners, torch.tensor([0]))
    assert torch.allclose(kept, (2 * logits).log_softmax(-1))
