"""Checks of prompts, and of the tokens that end and pad completions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from swor._checks import check_shape
from swor.integrations.transformers._networks import underlying

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Tokens(NamedTuple):
    """The special tokens of completions."""

    ends: tuple[int, ...]  # each ends a completion; empty if all completions have the same length
    pad: int  # pads completions that have ended

    def lengths(self, value: Tensor) -> Tensor:
        """Return the number of tokens of each completion, (*batch,), including its end token."""
        ended = torch.isin(value, torch.tensor(self.ends, device=value.device, dtype=value.dtype))
        before = (ended.cumsum(-1) == 0).sum(-1)
        return (before + 1).clamp(max=value.shape[-1])


class Prompts(NamedTuple):
    """The prompts to complete, with the special tokens."""

    input_ids: Tensor  # (batch, tokens)
    attention_mask: Tensor | None  # (batch, tokens), 0 for padding
    tokens: Tokens


def tokens_of(
    model: PreTrainedModel, eos_token_id: int | Sequence[int] | None, pad_token_id: int | None
) -> Tokens:
    """Return the given special tokens, or those of the model's generation config."""
    inside = underlying(model)
    _check_cached(inside)
    defaults = inside.generation_config
    given = defaults.eos_token_id if eos_token_id is None else eos_token_id
    ends = () if given is None else (given,) if isinstance(given, int) else tuple(given)
    symbols = vocabulary(inside)
    for end in ends:
        if not 0 <= end < symbols:
            raise ValueError(
                f"eos_token_id is {end}, but the model has {symbols} tokens; expected one of them. "
                "Give another eos_token_id, or [] if completions end only at max_new_tokens."
            )
    pad = defaults.pad_token_id if pad_token_id is None else pad_token_id
    return Tokens(ends, (ends[0] if ends else 0) if pad is None else pad)


def vocabulary(model: PreTrainedModel) -> int:
    """Return the number of tokens in the vocabulary of a model."""
    size: int = underlying(model).config.get_text_config(decoder=True).vocab_size
    return size


def _check_cached(model: PreTrainedModel) -> None:
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise TypeError(
            f"{type(model).__name__} has no cache of keys and values (its forward takes no "
            "past_key_values); expected a model that supports one. Load it with "
            "AutoModelForCausalLM or AutoModelForSeq2SeqLM."
        )


def check_prompts(model: PreTrainedModel, prompts: Prompts) -> Tensor:
    """Check that prompts are not empty or, for a decoder, padded on the right; return their mask."""
    input_ids, given, tokens = prompts
    if input_ids.dim() != 2 or input_ids.dtype != torch.long:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)} and dtype {input_ids.dtype}; expected "
            "(batch, tokens) in torch.long. Tokenise with return_tensors='pt'."
        )
    mask = torch.ones_like(input_ids) if given is None else given.long()
    check_shape("attention_mask", mask, tuple(input_ids.shape), "the shape of input_ids")
    empty = ~mask.any(-1)
    if bool(empty.any()):
        raise ValueError(
            f"prompt {int(empty.long().argmax())} is empty; expected at least one token. Begin it "
            "with the model's bos_token_id."
        )
    if not underlying(model).config.is_encoder_decoder:
        _check_left_padded(input_ids, given, tokens)
    return mask


def _check_left_padded(input_ids: Tensor, mask: Tensor | None, tokens: Tokens) -> None:
    if mask is not None:
        right = mask.long().diff(dim=-1).lt(0).any(-1)
    elif tokens.ends and tokens.pad not in tokens.ends:  # then this token can only be padding
        right = (input_ids[..., -1] == tokens.pad) & (input_ids != tokens.pad).any(-1)
    else:
        return
    if bool(right.any()):
        raise ValueError(
            f"prompt {int(right.long().argmax())} is padded on the right, so its completion would "
            "follow the padding; expected padding on the left for a decoder-only model. Tokenise "
            "with tokenizer.padding_side = 'left'."
        )
