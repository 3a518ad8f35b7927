r"""The completions of prompts as a :class:`swor.SequenceModel`: $p(x) = \prod_t p(x_t \mid x_{<t})$.

A search draws them token by token. Their log-probabilities with gradient are computed for all tokens at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from swor._checks import check_count
from swor.integrations.transformers._caches import (
    arrange,
    fork,
    keep,
    layers_of,
    only_attention,
)
from swor.integrations.transformers._head import Head
from swor.integrations.transformers._prompts import longest
from swor.integrations.transformers._wrappers import Ranks, underlying
from swor.math._logspace import working_dtype
from swor.samplers.sequence_model import extend
from swor.types import Sample

if TYPE_CHECKING:
    from transformers import Cache


class PartialCompletions(NamedTuple):
    """The completions so far. Only those that have not ended have a row in the cache."""

    tokens: Tensor  # (batch, beams, t)
    row: Tensor  # (batch, beams), −1 for completions that have ended
    cache: Cache
    first: Tensor  # the logits of the first token, (batch, symbols)
    log_probs: Tensor | None = None  # those of the last step, (batch, beams, symbols)


class CompletionPolicy:
    """The distribution over completions that a language model and its prompts define.

    Args:
        head: the distribution of the next token.
        length: the largest number of tokens in a completion.
        ranks: the ranks that must call the model equally often, if there are others.
        chunk: the number of completions per prompt that are scored at a time, all if None. The activations
            of one chunk are in memory, and those of the others are computed again in the backward pass.
        drawn: whether completions to score were drawn from the head, so that all their tokens are possible.
    """

    def __init__(
        self,
        head: Head,
        length: int,
        *,
        ranks: Ranks | None = None,
        chunk: int | None = None,
        drawn: bool = False,
    ) -> None:
        if chunk is not None:
            check_count("chunk", chunk)
        self.head, self.network, self.tokens = head, head.network, head.tokens
        self.end = self.tokens.end
        self.length, self.ranks, self.chunk, self.drawn = length, ranks, chunk, drawn
        self.spare: Cache | None = None  # of the first prompt, for calls that only join other ranks

    def start(self) -> PartialCompletions:
        """Return one empty completion per prompt, with the prompt in the cache."""
        logits, cache = self.network.prefill()
        if self.ranks is not None:
            self.spare = fork(cache)
            self.spare.reorder_cache(torch.zeros(1, dtype=torch.long, device=logits.device))
        row = torch.arange(len(logits), device=logits.device).unsqueeze(-1)
        tokens = torch.empty((len(logits), 1, 0), dtype=torch.long, device=logits.device)
        return PartialCompletions(tokens, row, cache, logits)

    def step(self, state: PartialCompletions) -> tuple[Tensor, PartialCompletions]:
        """Return the log-probabilities of the next token, (batch, beams, symbols), and the state."""
        live = state.row >= 0
        owners, tokens = live.nonzero()[:, 0], state.tokens[live]
        if tokens.shape[-1] and len(owners):
            logits = self._extend(state.cache, tokens, owners, state.row[live])
        else:
            logits = state.first[: len(owners)]
        log_probs = self.head.log_probs(logits, tokens, owners)
        if len(owners) == live.numel():
            log_probs = log_probs.view(*live.shape, -1)
        else:
            log_probs = self._scatter(log_probs, live)
        return log_probs, state._replace(log_probs=log_probs)

    def select(
        self, state: PartialCompletions, parents: Tensor, symbols: Tensor
    ) -> PartialCompletions:
        """Append a token to the selected completions; those that end leave the cache."""
        if state.log_probs is None:
            raise RuntimeError("select was called before step; expected step first. Call step.")
        index = parents * state.log_probs.shape[-1] + symbols
        possible = state.log_probs.flatten(-2).gather(-1, index) > -torch.inf
        row = state.row.gather(-1, parents)
        live = possible & (row >= 0) & ~self.tokens.end_at(symbols)
        rows = int((state.row >= 0).sum())
        kept, source = arrange(row[live], rows)
        keep(state.cache, source, rows)
        row = torch.full_like(row, -1).masked_scatter(live, kept)
        tokens = extend(state.tokens, parents, symbols)
        return PartialCompletions(tokens, row, state.cache, state.first)

    @torch.no_grad()
    def finish(self) -> None:
        """End a search: go on calling the model until the searches of all ranks have ended."""
        if self.ranks is None or self.spare is None:
            return
        nothing = torch.zeros(1, dtype=torch.long, device=self.ranks.device)
        while self.ranks.any(False):
            self.network.extend(fork(self.spare), nothing.unsqueeze(-1), nothing, 0)
        self.spare = None

    def filled(self, sample: Sample) -> Sample:
        """Return the sample with padding after the end of each completion."""
        counted = self.tokens.counted(sample.value)
        return replace(sample, value=torch.where(counted, sample.value, self.tokens.pad))

    def _extend(self, cache: Cache, tokens: Tensor, owners: Tensor, row: Tensor) -> Tensor:
        """Return the logits after completions, each of which has a row of the cache, in their order."""
        if self.ranks is not None:
            self.ranks.any(True)  # those that have ended make the same call, in finish
        order, past = row.argsort(), tokens.shape[-1] - 1
        logits = self.network.extend(cache, tokens[order, -1:], owners[order], past).squeeze(1)
        stay = torch.equal(row, torch.arange(len(row), device=row.device))
        return logits if stay else logits[row]  # a copy of the size of the vocabulary

    def _scatter(self, log_probs: Tensor, live: Tensor) -> Tensor:
        """Insert rows for completions that have ended, whose next token is the end with certainty."""
        every = log_probs.new_full((*live.shape, log_probs.shape[-1]), -torch.inf)
        every[..., self.end or 0] = 0.0
        every[live] = log_probs
        return every

    # Log-probabilities of completions that are given.

    def log_prob(self, value: Tensor) -> Tensor:
        """Map completions (batch, k, n) to log-probabilities (batch, k) with gradient.

        Tokens after an end do not count.
        """
        self.finish()
        counted = self.tokens.counted(value)
        counted = counted[..., : longest(counted)]
        value = torch.where(counted, value[..., : counted.shape[-1]], 0)  # padding may be no token
        first, cache = self._prefill()
        if self.chunk is None:
            return self._log_prob(value, counted, first, cache)
        parts = [
            checkpoint(self._log_prob, v, c, first, cache, use_reentrant=False)
            for v, c in zip(value.split(self.chunk, 1), counted.split(self.chunk, 1), strict=True)
        ]
        return torch.cat(parts, dim=1)

    def _prefill(self) -> tuple[Tensor | None, Cache | None]:
        """Return the logits of the first token and the cache of the prompts, if they can be shared."""
        model = self.network.model
        checkpointing = underlying(model).is_gradient_checkpointing and model.training
        if self.ranks is not None or checkpointing:
            return None, None  # a model that is spread over ranks is called once for a gradient
        first, cache = self.network.prefill()
        if all(only_attention(layer) for layer in layers_of(cache)):
            return first, cache
        return None, None  # recurrent layers overwrite states that the gradient needs

    def _log_prob(
        self, value: Tensor, counted: Tensor, first: Tensor | None, cache: Cache | None
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
        total = self._plain_total if self.head.plain else self._total
        return total(logits, tokens, owners, counted.flatten(0, 1)).view(batch, k)

    def _plain_total(
        self, logits: Tensor, tokens: Tensor, owners: Tensor, counted: Tensor
    ) -> Tensor:
        """Return the sum of the log-probabilities of the tokens that count, (rows,)."""
        logits = logits.to(working_dtype(logits.dtype))
        chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return torch.where(counted, chosen - logits.logsumexp(-1), 0.0).sum(-1)

    def _total(self, logits: Tensor, tokens: Tensor, owners: Tensor, counted: Tensor) -> Tensor:
        """Return the same sum token by token, since each may change the distribution of the next."""
        total = torch.zeros_like(logits[:, 0, 0], dtype=working_dtype(logits.dtype))
        for t in range(tokens.shape[-1]):
            possible = total.detach() > -torch.inf  # after an impossible token there is no next one
            rows = (counted[:, t] & possible).nonzero().squeeze(-1)
            own = tokens[rows, t]
            drawn = own if self.drawn else None
            log_probs = self.head.log_probs(logits[rows, t], tokens[rows, :t], owners[rows], drawn)
            chosen = log_probs.gather(-1, own.unsqueeze(-1)).squeeze(-1)
            total = total.index_add(0, rows, chosen)
        return total
