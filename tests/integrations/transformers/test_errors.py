"""Mistakes are named, with what to do."""

from __future__ import annotations

import pytest
import torch
from problems import seeded
from tiny_models import LEFT, PROMPTS, SYMBOLS, tiny
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
)

from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)
from swor.integrations.transformers._networks import position_limit


def mask_everything(tokens, logits):
    return torch.full_like(logits, -torch.inf)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens is 0; expected at least 1"),
        ({"max_new_tokens": 2.0}, TypeError, "max_new_tokens is 2.0; expected an integer"),
        ({"k": 0}, ValueError, "k is 0; expected at least 1"),
        ({"input_ids": PROMPTS.tolist()}, TypeError, "input_ids is a list; expected a tensor"),
        (
            {"attention_mask": LEFT.tolist()},
            TypeError,
            "attention_mask is a list; expected a tensor",
        ),
        ({"input_ids": PROMPTS[:0], "attention_mask": None}, ValueError, "no prompt at all"),
        (
            {"input_ids": PROMPTS.clamp(min=1) * 0 + SYMBOLS, "attention_mask": None},
            ValueError,
            f"input_ids contains the token {SYMBOLS}, but the model has {SYMBOLS} tokens",
        ),
        (
            {"input_ids": PROMPTS * 0 - 1, "attention_mask": None},
            ValueError,
            f"input_ids contains the token -1.*from 0 to {SYMBOLS - 1}",
        ),
        ({"eos_token_id": "."}, TypeError, "eos_token_id is '.'; expected a token id"),
        (
            {"logits_processor": lambda tokens, logits: None},
            TypeError,
            "logits_processor returned None; expected logits of shape",
        ),
        (
            {"logits_processor": lambda tokens, logits: logits[:, :2]},
            TypeError,
            r"logits_processor returned a tensor of shape .2, 2. .*expected logits of shape",
        ),
        ({"logits_processor": 0.7}, TypeError, "logits_processor is or contains a float"),
        ({"k": 85}, ValueError, "only 21 outcomes"),
        ({"input_ids": torch.zeros(2, 0).long(), "attention_mask": None}, ValueError, "is empty"),
        ({"attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0]])}, ValueError, "prompt 1 is empty"),
        ({"attention_mask": LEFT.flip(-1)}, ValueError, "prompt 1 is padded on the right"),
        (
            {"input_ids": PROMPTS.flip(-1), "attention_mask": None},
            ValueError,
            "prompt 1 begins or ends with the padding token .* there is no attention_mask",
        ),
        ({"attention_mask": None}, ValueError, "prompt 1 begins or ends with the padding token"),
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


def test_a_table_of_positions_has_an_end():
    """16 positions: 3 of the longest prompt, and 13 of the inputs for 14 new tokens."""
    model, every = tiny("gpt2"), {"k": 2, "eos_token_id": []}
    sample = sample_completions(model, PROMPTS, LEFT, max_new_tokens=14, **every)
    assert sample.log_p.isfinite().all()
    message = r"first 14 tokens of a completion and 3 before it need 17 positions, .* has 16"
    for draw in (sample_completions, ancestral_completions, beam_completions):
        with torch.no_grad(), pytest.raises(ValueError, match=message):
            draw(model, PROMPTS, LEFT, max_new_tokens=15, **every)
    with pytest.raises(ValueError, match=message):
        completion_log_probs(
            model, PROMPTS, torch.ones(2, 2, 15).long(), attention_mask=LEFT, eos_token_id=[]
        )
    with pytest.raises(ValueError, match="first 0 tokens of a completion and 17 before it"):
        sample_completions(model, torch.ones(1, 17).long(), k=2, max_new_tokens=1)


def test_a_short_prompt_may_be_completed_further_than_a_long_one():
    def end_the_first(tokens, logits):
        long = (tokens[:, :1] == 1) & (torch.arange(SYMBOLS) != 0)
        return logits.masked_fill(long, -torch.inf)

    given = {"k": 1, "max_new_tokens": 16, "logits_processor": end_the_first}
    sample = sample_completions(tiny("gpt2"), PROMPTS, LEFT, **given, generator=seeded())
    assert sample.value.shape == (2, 1, 16)


def test_an_encoder_decoder_has_a_table_of_its_own():
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 8}
    sizes |= {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    ends = {"bos_token_id": 1, "pad_token_id": 4, "eos_token_id": 0, "decoder_start_token_id": 1}
    model = BartForConditionalGeneration(BartConfig(vocab_size=5, **sizes, **ends)).eval()
    given = {"k": 2, "eos_token_id": []}
    sample_completions(model, PROMPTS[:1], max_new_tokens=8, **given)
    with pytest.raises(ValueError, match=r"first 8 tokens .* and 1 before it need 9"):
        sample_completions(model, PROMPTS[:1], max_new_tokens=9, **given)
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with pytest.raises(ValueError, match="the model has no decoder_start_token_id"):
        sample_completions(model, PROMPTS[:1], max_new_tokens=1, **given)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_positions_without_a_table_have_no_end(name):
    assert position_limit(tiny(name)) is None
    assert position_limit(tiny("gpt2")) == 16


def test_a_model_without_a_cache():
    config = OpenAIGPTConfig(vocab_size=5, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    model = OpenAIGPTLMHeadModel(config)
    for draw in (sample_completions, ancestral_completions, beam_completions):
        with pytest.raises(TypeError, match="OpenAIGPTLMHeadModel has no cache"):
            draw(model, PROMPTS, LEFT, k=2, max_new_tokens=2)


def test_values_of_another_shape():
    with pytest.raises(ValueError, match="expected token ids"):
        completion_log_probs(tiny("gpt2"), PROMPTS, PROMPTS, attention_mask=LEFT)
    with pytest.raises(ValueError, match="completions of every prompt"):
        completion_log_probs(
            tiny("gpt2"), PROMPTS, torch.zeros(3, 2, 2).long(), attention_mask=LEFT
        )
    with pytest.raises(ValueError, match="chunk is 0"):
        value = torch.zeros(2, 2, 2).long()
        completion_log_probs(tiny("gpt2"), PROMPTS, value, attention_mask=LEFT, chunk=0)


def test_completions_that_are_no_tokens():
    model, end = tiny("gpt2"), 0
    value = torch.tensor([[[1, SYMBOLS]], [[1, 2]]])
    with pytest.raises(ValueError, match=f"value contains the token {SYMBOLS}"):
        completion_log_probs(model, PROMPTS, value, attention_mask=LEFT, eos_token_id=end)
    ignored = torch.tensor([[[1, -100]], [[1, 2]]])
    with pytest.raises(
        ValueError, match=r"value contains the token -100.*padding only after the end"
    ):
        completion_log_probs(model, PROMPTS, ignored, attention_mask=LEFT, eos_token_id=end)
    with pytest.raises(TypeError, match="value is a list; expected a tensor"):
        completion_log_probs(model, PROMPTS, value.tolist(), attention_mask=LEFT)


def test_padding_after_the_end_may_be_no_token():
    model, end = tiny("gpt2"), 0
    value = torch.tensor([[[1, end, 3]], [[1, 2, 3]]])
    padded = torch.tensor([[[1, end, -100]], [[1, 2, 3]]])
    options = {"attention_mask": LEFT, "eos_token_id": end}
    found = [completion_log_probs(model, PROMPTS, v, **options) for v in (value, padded)]
    assert torch.equal(*found)
