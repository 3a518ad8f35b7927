"""Adapters of Hugging Face models that encode prompts once and extend rows of tokens.

Both have the methods of :class:`Decoder`. ``owners``, (rows,), has the index of the prompt that each row
completes.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swor.integrations.transformers._caches import cache_of
from swor.integrations.transformers._wrappers import underlying

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel


class Decoder:
    """A decoder-only model with prompts (batch, tokens) that are padded on the left."""

    def __init__(self, model: PreTrainedModel, input_ids: Tensor, mask: Tensor) -> None:
        self.model, self.input_ids, self.mask = model, input_ids, mask
        self.padded = not bool(mask.all())
        self.lengths = mask.sum(-1)
        self.longest, self.most = int(self.lengths.max()), position_limit(model)
        self.takes = inspect.signature(underlying(model).forward).parameters

    def prefill(self) -> tuple[Tensor, Cache]:
        """Return the logits of the first token, (batch, symbols), and the cache of the prompts."""
        check_position(self.most, self.longest, 0)
        out = self._call(self.input_ids, self.mask, keep=1, use_cache=True)
        return out.logits[:, -1], cache_of(out)

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """Return the logits after each of the new tokens (rows, n), (rows, n, symbols).

        The new tokens follow ``past`` other tokens of the completion.
        """
        self._check_position(owners, past + tokens.shape[-1])
        ones = self.mask.new_ones(len(tokens), past + tokens.shape[-1])
        mask = torch.cat([self.mask[owners], ones], dim=-1)
        logits: Tensor = self._call(tokens, mask, use_cache=True, cache=cache).logits
        return logits

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the logits of tokens (rows, n), computed in one pass without a cache, (rows, n, symbols)."""
        n = tokens.shape[-1]
        self._check_position(owners, n - 1)
        ids = self.context(tokens, owners)[:, :-1]
        mask = torch.cat([self.mask[owners], torch.ones_like(tokens)], dim=-1)[:, :-1]
        logits: Tensor = self._call(ids, mask, keep=n, use_cache=False).logits
        return logits[:, -n:]

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the token ids for a logits processor, the prompts before the tokens, (rows, prefix + n)."""
        return torch.cat([self.input_ids[owners], tokens], dim=-1)

    def _check_position(self, owners: Tensor, tokens: int) -> None:
        # The longest prompt may have no row any more, if all its completions have ended.
        if self.most is not None and self.longest + tokens > self.most:
            check_position(self.most, int(self.lengths[owners].max()), tokens)

    def _call(
        self,
        ids: Tensor,
        mask: Tensor,
        *,
        use_cache: bool,
        keep: int = 0,
        cache: Cache | None = None,
    ) -> Any:
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "use_cache": use_cache}
        if cache is not None:
            inputs["past_key_values"] = cache
        if self.padded and "position_ids" in self.takes:  # otherwise the model counts by itself
            positions = (mask.cumsum(-1) - 1).clamp(min=0)  # without padding
            inputs["position_ids"] = positions[:, -ids.shape[-1] :]
        if keep and "logits_to_keep" in self.takes:
            inputs["logits_to_keep"] = keep
        return self.model(**inputs)


class EncoderDecoder:
    """An encoder-decoder model, whose completions begin with tokens of their own.

    Args:
        model: the model.
        mask: of the prompts, (batch, tokens), 0 for padding.
        start: the tokens that every completion begins with, (batch, n).
        prompts: as the model takes them: ``input_ids``, or ``encoder_outputs`` for calls without gradient.
        sharded: whether the encoder cannot be called without the rest of the model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        mask: Tensor,
        start: Tensor,
        prompts: dict[str, Any],
        *,
        sharded: bool = False,
    ) -> None:
        self.model, self.mask, self.start, self.prompts = model, mask, start, prompts
        self.sharded, self.most = sharded, position_limit(model)
        self.hidden = torch.empty(0)  # of the prompts, after prefill

    def prefill(self) -> tuple[Tensor, Cache]:
        """Run one pass over prompts and the tokens that completions begin with."""
        check_position(self.most, self.start.shape[-1], 0)
        out = self._call(self.start, self.mask, self.prompts, use_cache=True)
        self.hidden = out.encoder_last_hidden_state
        return out.logits[:, -1], cache_of(out)

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """Run one pass over new tokens."""
        check_position(self.most, self.start.shape[-1], past + tokens.shape[-1])
        encoded = {"encoder_outputs": (self.hidden[owners],)}
        out = self._call(tokens, self.mask[owners], encoded, use_cache=True, cache=cache)
        logits: Tensor = out.logits
        return logits

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Run one pass over start token and tokens; the last token is predicted only."""
        check_position(self.most, self.start.shape[-1], tokens.shape[-1] - 1)
        ids = self.context(tokens, owners)[:, :-1]
        if self.sharded:
            prompts: dict[str, Any] = {"input_ids": self.prompts["input_ids"][owners]}
        else:
            encoder = underlying(self.model).get_encoder()
            hidden = encoder(**self.prompts, attention_mask=self.mask).last_hidden_state
            prompts = {"encoder_outputs": (hidden[owners],)}
        logits: Tensor = self._call(ids, self.mask[owners], prompts, use_cache=False).logits
        return logits

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the tokens that completions begin with, followed by the tokens."""
        return torch.cat([self.start[owners], tokens], dim=-1)

    def _call(
        self,
        ids: Tensor,
        mask: Tensor,
        prompts: dict[str, Any],
        *,
        use_cache: bool,
        cache: Cache | None = None,
    ) -> Any:
        return self.model(
            decoder_input_ids=ids,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=use_cache,
            **prompts,
        )


Network = Decoder | EncoderDecoder


def network_of(
    model: PreTrainedModel, input_ids: Tensor, mask: Tensor, *, sharded: bool = False
) -> Network:
    """Return the adapter that fits a model."""
    inside = underlying(model)
    if not inside.config.is_encoder_decoder:
        return Decoder(model, input_ids, mask)
    start = inside.generation_config.decoder_start_token_id
    start = inside.config.decoder_start_token_id if start is None else start
    if start is None:
        raise ValueError(
            "the model has no decoder_start_token_id; expected the token that precedes "
            "every completion. Set model.generation_config.decoder_start_token_id."
        )
    starts = input_ids.new_full((len(input_ids), 1), start)
    return EncoderDecoder(model, mask, starts, {"input_ids": input_ids}, sharded=sharded)


def position_limit(model: PreTrainedModel) -> int | None:
    """Return the number of positions in the model's table, or None if it computes them (rotary models)."""
    inside = underlying(model)
    tables = (n for n, m in inside.named_modules() if isinstance(m, nn.Embedding))
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
