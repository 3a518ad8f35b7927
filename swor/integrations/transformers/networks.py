"""A Hugging Face model as prompts that are encoded once, and rows that are extended."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from swor.integrations.transformers.wrappers import underlying

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel


class Network(Protocol):
    """What a model computes; ``owners`` (rows,) says which prompt each row completes."""

    def prefill(self) -> tuple[Tensor, Cache]:
        """Logits of the first token, (batch, symbols), and the cache of the prompts."""
        ...

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """Logits after each of the tokens (rows, n) that follow ``past`` others, (rows, n, symbols)."""
        ...

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Logits of tokens (rows, n) in one pass without a cache, (rows, n, symbols)."""
        ...

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """The token ids that a logits processor sees, (rows, prefix + n)."""
        ...


class Decoder:
    """A decoder-only model on prompts that are padded on the left."""

    def __init__(self, model: PreTrainedModel, input_ids: Tensor, mask: Tensor) -> None:
        self.model, self.input_ids, self.mask = model, input_ids, mask
        self.padded = not bool(mask.all())
        self.lengths = mask.sum(-1)
        self.takes = inspect.signature(underlying(model).forward).parameters

    def prefill(self) -> tuple[Tensor, Cache]:
        """One pass over the prompts."""
        out = self._call(self.input_ids, self.mask, self._positions(), keep=1, use_cache=True)
        return out.logits[:, -1], checked(out.past_key_values)

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """One pass over new tokens."""
        ones = self.mask.new_ones(len(tokens), past + tokens.shape[-1])
        mask = torch.cat([self.mask[owners], ones], dim=-1)
        steps = torch.arange(past, past + tokens.shape[-1], device=tokens.device)
        positions = self.lengths[owners].unsqueeze(-1) + steps
        logits: Tensor = self._call(tokens, mask, positions, use_cache=True, cache=cache).logits
        return logits

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """One pass over prompts and tokens; the last token is only predicted."""
        n = tokens.shape[-1]
        ids = self.context(tokens, owners)[:, :-1]
        mask = torch.cat([self.mask[owners], torch.ones_like(tokens)], dim=-1)[:, :-1]
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits: Tensor = self._call(ids, mask, positions, keep=n, use_cache=False).logits
        return logits[:, -n:]

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """The prompt, and the tokens after it."""
        return torch.cat([self.input_ids[owners], tokens], dim=-1)

    def _positions(self) -> Tensor:
        return (self.mask.cumsum(-1) - 1).clamp(min=0)

    def _call(
        self,
        ids: Tensor,
        mask: Tensor,
        positions: Tensor,
        *,
        use_cache: bool,
        keep: int = 0,
        cache: Cache | None = None,
    ) -> Any:
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "use_cache": use_cache}
        if cache is not None:
            inputs["past_key_values"] = cache
        if self.padded and "position_ids" in self.takes:  # otherwise the model counts right itself
            inputs["position_ids"] = positions
        if keep and "logits_to_keep" in self.takes:
            inputs["logits_to_keep"] = keep
        return self.model(**inputs)


class EncoderDecoder:
    """An encoder-decoder model: prompts are encoded, completions begin with its start token."""

    def __init__(self, model: PreTrainedModel, input_ids: Tensor, mask: Tensor) -> None:
        self.model, self.mask = model, mask
        encoded = model.get_encoder()(input_ids=input_ids, attention_mask=mask)
        self.hidden: Tensor = encoded.last_hidden_state
        inside = underlying(model)
        start = inside.generation_config.decoder_start_token_id
        start = inside.config.decoder_start_token_id if start is None else start
        if start is None:
            raise ValueError(
                "the model has no decoder_start_token_id; expected the token that completions "
                "begin after. Set model.generation_config.decoder_start_token_id."
            )
        self.start = input_ids.new_full((len(input_ids), 1), start)

    def prefill(self) -> tuple[Tensor, Cache]:
        """One pass over the start tokens."""
        owners = torch.arange(len(self.start), device=self.start.device)
        out = self._call(self.start, owners, use_cache=True)
        return out.logits[:, -1], checked(out.past_key_values)

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """One pass over new tokens."""
        logits: Tensor = self._call(tokens, owners, use_cache=True, cache=cache).logits
        return logits

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """One pass over start token and tokens; the last token is only predicted."""
        ids = self.context(tokens, owners)[:, :-1]
        logits: Tensor = self._call(ids, owners, use_cache=False).logits
        return logits

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """The start token, and the tokens after it."""
        return torch.cat([self.start[owners], tokens], dim=-1)

    def _call(
        self, ids: Tensor, owners: Tensor, *, use_cache: bool, cache: Cache | None = None
    ) -> Any:
        return self.model(
            decoder_input_ids=ids,
            encoder_outputs=(self.hidden[owners],),
            attention_mask=self.mask[owners],
            past_key_values=cache,
            use_cache=use_cache,
        )


def network(model: PreTrainedModel, input_ids: Tensor, mask: Tensor) -> Network:
    """The network that fits the model."""
    kind = EncoderDecoder if underlying(model).config.is_encoder_decoder else Decoder
    return kind(model, input_ids, mask)


def checked(cache: Any) -> Cache:
    """A cache whose rows can be re-ordered."""
    if not hasattr(cache, "reorder_cache"):
        raise TypeError(
            f"the model returned {type(cache).__name__} for its past_key_values; expected a "
            "transformers Cache. Use a model that generates with one."
        )
    return cache


def fork(cache: Cache) -> Cache:
    """A cache of the same tensors that can be extended on its own."""
    other = copy.copy(cache)
    if hasattr(cache, "cross_attention_cache"):
        other.self_attention_cache = fork(cache.self_attention_cache)
        other.cross_attention_cache = fork(cache.cross_attention_cache)
        other.is_updated = dict(cache.is_updated)
    else:
        other.layers = [copy.copy(layer) for layer in cache.layers]
    return other


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout, which would make the distribution another one in every step."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
