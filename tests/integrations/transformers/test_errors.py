"""Mistakes are named, with what to do."""

from __future__ import annotations

import pytest
import torch
from tiny_models import LEFT, PROMPTS, tiny
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)


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
