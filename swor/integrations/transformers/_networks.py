"""Adapters of Hugging Face models that encode prompts once and extend rows of tokens."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from swor.integrations.transformers._caches import checked

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

# Of torch.compile; of data parallelism and of DeepSpeed; of the first FSDP.
INSIDE = ("_orig_mod", "module", "_fsdp_wrapped_module")


class Network(Protocol):
    """A model with its prompts. ``owners``, (rows,), has the index of the prompt that each row completes."""

    def prefill(self) -> tuple[Tensor, Cache]:
        """Return the logits of the first token, (batch, symbols), and the cache of the prompts."""
        ...

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """Return the logits after each of the new tokens (rows, n), (rows, n, symbols).

        The new tokens follow ``past`` other tokens of the completion.
        """
        ...

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the logits of tokens (rows, n), computed in one pass without a cache, (rows, n, symbols)."""
        ...

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the token ids for a logits processor, (rows, prefix + n)."""
        ...


def network_of(
    model: PreTrainedModel, input_ids: Tensor, mask: Tensor, *, sharded: bool = False
) -> Network:
    """Return the adapter that fits a model."""
    if underlying(model).config.is_encoder_decoder:
        return EncoderDecoder(model, input_ids, mask, sharded=sharded)
    return Decoder(model, input_ids, mask)


class Decoder:
    """A decoder-only model with prompts that are padded on the left."""

    def __init__(self, model: PreTrainedModel, input_ids: Tensor, mask: Tensor) -> None:
        self.model, self.input_ids, self.mask = model, input_ids, mask
        self.padded = not bool(mask.all())
        self.lengths = mask.sum(-1)
        self.longest, self.most = int(self.lengths.max()), position_limit(model)
        self.takes = inspect.signature(underlying(model).forward).parameters

    def prefill(self) -> tuple[Tensor, Cache]:
        """Run one pass over the prompts."""
        check_position(self.most, self.longest, 0)
        out = self._call(self.input_ids, self.mask, _positions(self.mask), keep=1, use_cache=True)
        return out.logits[:, -1], checked(getattr(out, "past_key_values", None))

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """Run one pass over new tokens."""
        self._check_position(owners, past + tokens.shape[-1])
        ones = self.mask.new_ones(len(tokens), past + tokens.shape[-1])
        mask = torch.cat([self.mask[owners], ones], dim=-1)
        steps = torch.arange(past, past + tokens.shape[-1], device=tokens.device)
        positions = self.lengths[owners].unsqueeze(-1) + steps
        logits: Tensor = self._call(tokens, mask, positions, use_cache=True, cache=cache).logits
        return logits

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Run one pass over prompts and tokens; the last token is predicted only."""
        n = tokens.shape[-1]
        self._check_position(owners, n - 1)
        ids = self.context(tokens, owners)[:, :-1]
        mask = torch.cat([self.mask[owners], torch.ones_like(tokens)], dim=-1)[:, :-1]
        out = self._call(ids, mask, _positions(mask), keep=n, use_cache=False)
        logits: Tensor = out.logits
        return logits[:, -n:]

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the prompts, followed by the tokens."""
        return torch.cat([self.input_ids[owners], tokens], dim=-1)

    def _check_position(self, owners: Tensor, tokens: int) -> None:
        # The longest prompt may have no row any more, if all its completions have ended.
        if self.most is not None and self.longest + tokens > self.most:
            check_position(self.most, int(self.lengths[owners].max()), tokens)

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
        if self.padded and "position_ids" in self.takes:  # otherwise the model counts by itself
            inputs["position_ids"] = positions
        if keep and "logits_to_keep" in self.takes:
            inputs["logits_to_keep"] = keep
        return self.model(**inputs)


class EncoderDecoder:
    """An encoder-decoder model, which encodes the prompts and begins completions with a start token.

    Args:
        model: the model.
        input_ids: prompts, (batch, tokens).
        mask: (batch, tokens), 0 for padding.
        sharded: whether the encoder cannot be called without the rest of the model.
    """

    def __init__(
        self, model: PreTrainedModel, input_ids: Tensor, mask: Tensor, *, sharded: bool = False
    ) -> None:
        self.model, self.input_ids, self.mask, self.sharded = model, input_ids, mask, sharded
        self.most = position_limit(model)
        inside = underlying(model)
        start = inside.generation_config.decoder_start_token_id
        start = inside.config.decoder_start_token_id if start is None else start
        if start is None:
            raise ValueError(
                "the model has no decoder_start_token_id; expected the token that precedes "
                "every completion. Set model.generation_config.decoder_start_token_id."
            )
        self.start = input_ids.new_full((len(input_ids), 1), start)
        self.hidden = torch.empty(0)  # of the prompts, after prefill

    def prefill(self) -> tuple[Tensor, Cache]:
        """Run one pass over prompts and start tokens."""
        out = self.model(
            input_ids=self.input_ids,
            attention_mask=self.mask,
            decoder_input_ids=self.start,
            use_cache=True,
        )
        self.hidden = out.encoder_last_hidden_state
        return out.logits[:, -1], checked(getattr(out, "past_key_values", None))

    def extend(self, cache: Cache, tokens: Tensor, owners: Tensor, past: int) -> Tensor:
        """Run one pass over new tokens."""
        check_position(self.most, self.start.shape[-1], past + tokens.shape[-1])
        prompts = {"encoder_outputs": (self.hidden[owners],)}
        return self._decode(tokens, owners, prompts, cache)

    def whole(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Run one pass over start tokens and tokens; the last token is predicted only."""
        check_position(self.most, 1, tokens.shape[-1] - 1)
        ids = self.context(tokens, owners)[:, :-1]
        if self.sharded:
            return self._decode(ids, owners, {"input_ids": self.input_ids[owners]})
        encoder = underlying(self.model).get_encoder()
        hidden = encoder(input_ids=self.input_ids, attention_mask=self.mask).last_hidden_state
        return self._decode(ids, owners, {"encoder_outputs": (hidden[owners],)})

    def context(self, tokens: Tensor, owners: Tensor) -> Tensor:
        """Return the start token, followed by the tokens."""
        return torch.cat([self.start[owners], tokens], dim=-1)

    def _decode(
        self, ids: Tensor, owners: Tensor, prompts: dict[str, Any], cache: Cache | None = None
    ) -> Tensor:
        logits: Tensor = self.model(
            decoder_input_ids=ids,
            attention_mask=self.mask[owners],
            past_key_values=cache,
            use_cache=cache is not None,
            **prompts,
        ).logits
        return logits


class Encoded(EncoderDecoder):
    """An encoder-decoder model whose prompts are encoded already, for calls without gradient.

    Args:
        model: the model.
        hidden: the last hidden states of the encoder, (batch, tokens, features).
        mask: (batch, tokens), 0 for padding.
        start: the tokens with which every completion begins, (batch, n).
    """

    def __init__(self, model: PreTrainedModel, hidden: Tensor, mask: Tensor, start: Tensor) -> None:
        self.model, self.hidden, self.mask, self.start = model, hidden, mask, start
        self.most = position_limit(model)

    def prefill(self) -> tuple[Tensor, Cache]:
        """Run one pass over the start tokens."""
        check_position(self.most, self.start.shape[-1], 0)
        out = self.model(
            encoder_outputs=(self.hidden,),
            attention_mask=self.mask,
            decoder_input_ids=self.start,
            use_cache=True,
        )
        return out.logits[:, -1], checked(getattr(out, "past_key_values", None))


def _positions(mask: Tensor) -> Tensor:
    """Return the position of every token, counted without padding."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


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


def underlying(model: nn.Module) -> PreTrainedModel:
    """Return the model inside all wrappers, which has the settings and whose ``forward`` names its arguments.

    Read settings from it, but call the wrapped model: a direct call would bypass adapters and hooks.
    """
    inside: Any = model
    while True:
        if hasattr(inside, "get_base_model"):
            check_adapter(inside)
            inside = inside.get_base_model()
        elif wrappers := [name for name in INSIDE if name in getattr(inside, "_modules", {})]:
            inside = inside.get_submodule(wrappers[0])
        else:
            base: PreTrainedModel = inside
            return base


def check_adapter(model: Any) -> None:
    """Check that an adapter acts alike on a whole sequence and on one that is extended token by token."""
    config = model.active_peft_config
    if config.is_prompt_learning:
        raise TypeError(
            f"the adapter {model.active_adapter!r} is of type {config.peft_type.value}, which puts "
            "virtual tokens before the input of every call; expected an adapter of the weights, such "
            "as LoRA, with which completions can be extended by a cache."
        )
    if getattr(config, "alora_invocation_tokens", None):
        raise TypeError(
            f"the adapter {model.active_adapter!r} has alora_invocation_tokens, which it looks for in "
            "the input of every call; expected an adapter that is always on, such as plain LoRA, "
            "with which completions can be extended by a cache."
        )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout, which would change the distribution in every step."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
