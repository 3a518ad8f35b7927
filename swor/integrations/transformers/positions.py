"""The positions of a model: some look them up in a table, which has an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from swor.integrations.transformers.wrappers import underlying

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def position_limit(model: PreTrainedModel) -> int | None:
    """The number of positions in the model's table, or None if it computes them, as rotary models do."""
    inside = underlying(model)
    tables = (n for n, m in inside.named_modules() if isinstance(m, torch.nn.Embedding))
    if not any(name.endswith(("wpe", "embed_positions")) for name in tables):
        return None
    config = inside.config.get_text_config(decoder=True)
    most: int | None = getattr(config, "max_position_embeddings", None)
    return most


def check_position(most: int | None, before: int, tokens: int) -> None:
    """Check that the first tokens of a completion, and those before it, have positions."""
    if most is not None and before + tokens > most:
        raise ValueError(
            f"the first {tokens} tokens of a completion and {before} before it need "
            f"{before + tokens} positions, but the model has {most}; expected at most as many. Lower "
            "max_new_tokens, or shorten the prompts."
        )
