"""A logits processor defines the distribution that is sampled."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from problems import chi_square, seeded
from tiny_models import DRAWS, LENGTH, log_probs, many, masks, rows, sequences, tiny
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from swor.integrations.transformers import completion_log_probs, sample_completions


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
