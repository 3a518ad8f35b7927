"""Text-only prompts of vision-language models: completions have the probabilities of the model."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from swor.integrations.transformers import sample_completions

TEXT = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 2, "num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
PROMPTS = torch.tensor([[0, 5, 6, 7], [8, 9, 10, 11]])
MASK = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])


def gemma():
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    vision |= {"image_size": 28, "patch_size": 14}
    images = {"image_token_index": 60, "boi_token_index": 61, "eoi_token_index": 62}
    config = Gemma3Config(
        text_config=dict(TEXT), vision_config=vision, mm_tokens_per_image=4, **images
    )
    return Gemma3ForConditionalGeneration(config)


def qwen():
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "num_heads": 2,
        "out_hidden_size": 16,
        "intermediate_size": 16,
    }
    text = TEXT | {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}
    images = {
        "image_token_id": 60,
        "video_token_id": 61,
        "vision_start_token_id": 62,
        "vision_end_token_id": 63,
    }
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config=vision, **images)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [gemma, qwen])
def test_text_alone(make):
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        sample = sample_completions(
            model, PROMPTS, MASK, k=4, max_new_tokens=3, eos_token_id=[2], pad_token_id=0
        )
        for prompt, mask, values, log_p in zip(
            PROMPTS, MASK, sample.value, sample.log_p, strict=True
        ):
            for value, found in zip(values.tolist(), log_p, strict=True):
                start = prompt[mask.bool()].tolist()
                tokens = value[: value.index(2) + 1] if 2 in value else value
                logits = model(torch.tensor([start + tokens])).logits[0, len(start) - 1 : -1]
                each = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])
                assert found.item() == pytest.approx(each.sum().item(), abs=1e-4)
