"""Prompts and completions as token ids: the end and padding tokens, and checks of all arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from swor._checks import check_shape, check_tensor
from swor.integrations.transformers._wrappers import underlying

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class Tokens(NamedTuple):
    """The special tokens of completions."""

    ends: tuple[int, ...]  # each ends a completion; empty if all completions have the same length
    pad: int  # pads completions that have ended

    @property
    def end(self) -> int | None:
        """The first of the tokens that end a completion, if there is one."""
        return self.ends[0] if self.ends else None

    def end_at(self, value: Tensor) -> Tensor:
        """Return which tokens end a completion."""
        return torch.isin(value, torch.tensor(self.ends, device=value.device, dtype=value.dtype))

    def counted(self, value: Tensor) -> Tensor:
        """Return which tokens of completions (*batch, n) belong to them, the end token included."""
        ended = self.end_at(value).long()
        return ended.cumsum(-1) == ended


def longest(counted: Tensor) -> int:
    """Return the number of tokens of the longest completion, given which of them are counted."""
    return int(counted.flatten(0, -2).any(0).sum())


class Prompts(NamedTuple):
    """The prompts to complete, with the special tokens."""

    input_ids: Tensor  # (batch, tokens)
    mask: Tensor  # (batch, tokens), 0 for padding
    tokens: Tokens


def tokens_of(
    model: PreTrainedModel, eos_token_id: int | Sequence[int] | None, pad_token_id: int | None
) -> Tokens:
    """Return the given special tokens, or those of the model's generation config."""
    inside = underlying(model)
    _check_cached(inside)
    defaults = inside.generation_config
    given = defaults.eos_token_id if eos_token_id is None else eos_token_id
    ends = token_ids(given)
    symbols = vocabulary(inside)
    for end in ends:
        if not 0 <= end < symbols:
            raise ValueError(
                f"eos_token_id is {end}, but the model has {symbols} tokens; expected one of them. "
                "Give another eos_token_id, or [] if completions end only at max_new_tokens."
            )
    pad = defaults.pad_token_id if pad_token_id is None else pad_token_id
    return Tokens(ends, (ends[0] if ends else 0) if pad is None else pad)


def token_ids(given: Any) -> tuple[int, ...]:
    """Return one or several token ids, which may be numbers of NumPy or tensors, as integers."""
    if given is None:
        return ()
    single = not isinstance(given, Iterable) or getattr(given, "shape", None) == ()
    several: list[Any] = [given] if single else list(given)
    if isinstance(given, str) or not all(hasattr(x, "__index__") for x in several):
        raise TypeError(
            f"eos_token_id is {given!r}; expected a token id, a list of them, or None for those of the "
            "model. Convert a token with tokenizer.convert_tokens_to_ids."
        )
    return tuple(map(int, several))


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


def prompts_of(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    eos_token_id: int | Sequence[int] | None,
    pad_token_id: int | None,
) -> Prompts:
    """Check prompts, and return them with their mask and the special tokens."""
    tokens = tokens_of(model, eos_token_id, pad_token_id)
    check_tensor("input_ids", input_ids, torch.long)
    return Prompts(input_ids, check_prompts(model, input_ids, attention_mask, tokens), tokens)


def check_prompts(
    model: PreTrainedModel, input_ids: Tensor, given: Tensor | None, tokens: Tokens
) -> Tensor:
    """Check that prompts are not empty or, for a decoder, padded on the right; return their mask."""
    if input_ids.dim() != 2 or input_ids.dtype != torch.long:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)} and dtype {input_ids.dtype}; expected "
            "(batch, tokens) in torch.long. Tokenise with return_tensors='pt'."
        )
    if len(input_ids) == 0:
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)}, no prompt at all; expected at least one. "
            "Leave the call out where a batch is empty."
        )
    if given is not None:
        check_tensor("attention_mask", given, torch.long)
    mask = torch.ones_like(input_ids) if given is None else given.long()
    check_shape("attention_mask", mask, tuple(input_ids.shape), "the shape of input_ids")
    empty = ~mask.any(-1)
    if bool(empty.any()):
        raise ValueError(
            f"prompt {int(empty.long().argmax())} is empty; expected at least one token. Begin it "
            "with the model's bos_token_id."
        )
    cure = "mask padding with attention_mask"
    check_token_ids("input_ids", input_ids.masked_fill(mask == 0, 0), _embedded(model), cure)
    if given is None:
        _check_not_padded(input_ids, tokens, underlying(model).config)
    elif not underlying(model).config.is_encoder_decoder:
        _check_left_padded(given)
    return mask


def _embedded(model: PreTrainedModel) -> int | None:
    """Return the number of tokens that a model has an embedding for, if it tells."""
    return getattr(underlying(model).get_input_embeddings(), "num_embeddings", None)


def check_token_ids(name: str, ids: Tensor, symbols: int | None, cure: str) -> None:
    """Check that token ids are in the vocabulary; the embedding of another one is a bare index error."""
    if symbols is None or ids.numel() == 0:
        return
    least, most = (int(x) for x in ids.aminmax())
    if least < 0 or most >= symbols:
        raise ValueError(
            f"{name} contains the token {least if least < 0 else most}, but the model has {symbols} tokens; "
            f"expected ids from 0 to {symbols - 1}. Tokenise with the tokenizer of this model, or {cure}."
        )


def _check_not_padded(input_ids: Tensor, tokens: Tokens, config: PreTrainedConfig) -> None:
    """Check that prompts without a mask have no padding at either end, as far as it can be recognised."""
    others = {*tokens.ends, getattr(config, "bos_token_id", None)}
    if not tokens.ends or tokens.pad in others:  # then it may be no padding
        return
    padded = (input_ids[..., [0, -1]] == tokens.pad).any(-1)
    if bool(padded.any()):
        raise ValueError(
            f"prompt {int(padded.long().argmax())} begins or ends with the padding token {tokens.pad}, and "
            "there is no attention_mask; expected the mask that the tokenizer returns, since the model would "
            "read the padding as text. A decoder-only model needs it on the left: "
            "tokenizer.padding_side = 'left'."
        )


def _check_left_padded(mask: Tensor) -> None:
    right = mask.long().diff(dim=-1).lt(0).any(-1)
    if bool(right.any()):
        raise ValueError(
            f"prompt {int(right.long().argmax())} is padded on the right, so its completion would "
            "follow the padding; expected padding on the left for a decoder-only model. Tokenise "
            "with tokenizer.padding_side = 'left'."
        )


def check_value(value: Tensor, prompts: Prompts, symbols: int) -> None:
    """Check that completions are token ids of the model, (batch, k, n), up to their ends."""
    check_tensor("value", value, torch.long)
    if value.dim() != 3 or value.dtype != torch.long:
        raise ValueError(
            f"value has shape {tuple(value.shape)} and dtype {value.dtype}; expected token ids "
            "(batch, k, n) in torch.long, as sample_completions returns."
        )
    batch = len(prompts.input_ids)
    check_shape("value", value, (batch, *value.shape[1:]), "completions of every prompt")
    cure = "put padding only after the end token, which belongs to a completion that has ended"
    counted = prompts.tokens.counted(value)
    check_token_ids("value", torch.where(counted, value, 0), symbols, cure)
