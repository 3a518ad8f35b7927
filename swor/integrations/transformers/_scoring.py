r"""Log-probabilities of given completions, with gradient: $\log p(x) = \sum_t \log p(x_t \mid x_{<t})$."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from swor._checks import check_count, check_shape, check_tensor
from swor.integrations.transformers._caches import fork, only_attention
from swor.integrations.transformers._head import Head
from swor.integrations.transformers._prompts import Tokens, check_token_ids
from swor.math._logspace import working_dtype

if TYPE_CHECKING:
    from transformers import Cache


class Scorer:
    """The log-probabilities of completions of prompts, for all their tokens at once.

    Args:
        head: the distribution of the next token.
        cached: whether completions share the encoding of their prompt by a cache.
        chunk: the number of completions per prompt at a time, all if None. The activations of one
            chunk are in memory, and those of the others are computed again in the backward pass.
        drawn: whether the completions were drawn from the head, so that all of their tokens are possible.
    """

    def __init__(self, head: Head, *, cached: bool, chunk: int | None, drawn: bool = False) -> None:
        if chunk is not None:
            check_count("chunk", chunk)
        self.drawn = drawn
        self.head, self.network, self.cached, self.chunk = head, head.network, cached, chunk

    def log_prob(self, value: Tensor) -> Tensor:
        """Map completions (batch, k, n) to log-probabilities (batch, k); tokens after an end do not count."""
        lengths = self.head.tokens.lengths(value)
        value = value[..., : int(lengths.max()) if lengths.numel() else 0]
        value = torch.where(_counted(value, lengths), value, 0)  # padding may be no token at all
        first, cache = self._prefill()
        if self.chunk is None:
            return self._log_prob(value, lengths, first, cache)
        parts = [
            checkpoint(self._log_prob, v, n, first, cache, use_reentrant=False)
            for v, n in zip(value.split(self.chunk, 1), lengths.split(self.chunk, 1), strict=True)
        ]
        return torch.cat(parts, dim=1)

    def _prefill(self) -> tuple[Tensor | None, Cache | None]:
        """Return the logits of the first token and the cache of the prompts, if they can be shared."""
        if not self.cached:
            return None, None
        first, cache = self.network.prefill()
        parts = [getattr(cache, f"{name}_attention_cache", cache) for name in ("self", "cross")]
        if all(only_attention(layer) for part in parts for layer in part.layers):
            return first, cache
        return None, None  # recurrent layers overwrite states that the gradient needs

    def _log_prob(
        self, value: Tensor, lengths: Tensor, first: Tensor | None, cache: Cache | None
    ) -> Tensor:
        batch, k, n = value.shape
        owners = torch.arange(batch, device=value.device).repeat_interleave(k)
        tokens = value.flatten(0, 1)
        if first is None or cache is None:
            logits = self.network.whole(tokens, owners)
        else:
            logits = first[owners].unsqueeze(1)
            if n > 1:
                cache = fork(cache)
                cache.reorder_cache(owners)
                later = self.network.extend(cache, tokens[:, :-1], owners, 0)
                logits = torch.cat([logits, later], dim=1)
        counts = _counted(tokens, lengths.flatten())
        total = self._plain_total if self.head.plain else self._total
        return total(logits, tokens, owners, counts).view(batch, k)

    def _plain_total(
        self, logits: Tensor, tokens: Tensor, owners: Tensor, counts: Tensor
    ) -> Tensor:
        """Return the sum of the log-probabilities of the tokens that count, (rows,)."""
        logits = logits.to(working_dtype(logits.dtype))
        chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return torch.where(counts, chosen - logits.logsumexp(-1), 0.0).sum(-1)

    def _total(self, logits: Tensor, tokens: Tensor, owners: Tensor, counts: Tensor) -> Tensor:
        """Return the same sum token by token, since each may change the distribution of the next."""
        total = torch.zeros_like(logits[:, 0, 0], dtype=working_dtype(logits.dtype))
        for t in range(tokens.shape[-1]):
            possible = total.detach() > -torch.inf  # after an impossible token there is no next one
            rows = (counts[:, t] & possible).nonzero().squeeze(-1)
            own = tokens[rows, t]
            drawn = own if self.drawn else None
            log_probs = self.head.log_probs(logits[rows, t], tokens[rows, :t], owners[rows], drawn)
            chosen = log_probs.gather(-1, own.unsqueeze(-1)).squeeze(-1)
            total = total.index_add(0, rows, chosen)
        return total


def _counted(value: Tensor, lengths: Tensor) -> Tensor:
    """Return which tokens of completions (*batch, n) belong to them, given their lengths (*batch,)."""
    return torch.arange(value.shape[-1], device=value.device) < lengths.unsqueeze(-1)


def check_value(value: Tensor, batch: int, tokens: Tokens, symbols: int) -> None:
    """Check that completions are token ids of the model, (batch, k, n), up to their ends."""
    check_tensor("value", value, torch.long)
    if value.dim() != 3 or value.dtype != torch.long:
        raise ValueError(
            f"value has shape {tuple(value.shape)} and dtype {value.dtype}; expected token ids "
            "(batch, k, n) in torch.long, as sample_completions returns."
        )
    check_shape("value", value, (batch, *value.shape[1:]), "completions of every prompt")
    counted = _counted(value, tokens.lengths(value))
    check_token_ids("value", torch.where(counted, value, 0), symbols)
