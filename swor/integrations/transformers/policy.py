r"""The completions of prompts as a :class:`swor.SequenceModel`: $p(x) = \prod_t p(x_t \mid x_{<t})$."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from swor.checks import check_count, check_shape
from swor.integrations.transformers.networks import Network, fork
from swor.integrations.transformers.prompts import Tokens
from swor.integrations.transformers.shards import Ranks
from swor.math.logspace import working_dtype
from swor.types import Sample

if TYPE_CHECKING:
    from transformers import Cache

Processor = Callable[[Tensor, Tensor], Tensor]  # (token ids, logits) -> logits


class Beams(NamedTuple):
    """The completions so far. Only those that have not ended have a row in the cache."""

    tokens: Tensor  # (batch, beams, t)
    row: Tensor  # (batch, beams), −1 for completions that have ended
    cache: Cache
    first: Tensor  # the logits of the first token, (batch, symbols)
    log_probs: Tensor | None = None  # those of the last step, (batch, beams, symbols)


class CompletionPolicy:
    """The distribution over completions that a language model and its prompts define.

    Args:
        network: the model and the prompts.
        length: the largest number of tokens in a completion.
        tokens: the tokens that end and pad completions.
        processor: a function that changes the logits, and therefore the distribution.
        cached: whether :meth:`log_prob` shares the encoding of the prompts through a cache.
        chunk: the number of completions per prompt that :meth:`log_prob` processes at a time.
        ranks: the ranks that must call the model equally often, if there are others.
    """

    def __init__(
        self,
        network: Network,
        length: int,
        tokens: Tokens,
        *,
        processor: Processor | None = None,
        cached: bool = True,
        chunk: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.network, self.tokens, self.processor = network, tokens, processor
        self.length, self.cached, self.chunk = length, cached, chunk
        self.end = tokens.ends[0] if tokens.ends else None
        self.ranks = ranks
        self.spare: Cache | None = None  # of the first prompt, for calls that only join other ranks

    def start(self) -> Beams:
        """Return one empty completion per prompt, with the prompt in the cache."""
        logits, cache = self.network.prefill()
        if self.ranks is not None:
            self.spare = fork(cache)
            self.spare.reorder_cache(torch.zeros(1, dtype=torch.long, device=logits.device))
        row = torch.arange(len(logits), device=logits.device).unsqueeze(-1)
        tokens = torch.empty((len(logits), 1, 0), dtype=torch.long, device=logits.device)
        return Beams(tokens, row, cache, logits)

    def step(self, state: Beams) -> tuple[Tensor, Beams]:
        """Return the log-probabilities of the next token, (batch, beams, symbols), and the state."""
        live = state.row >= 0
        owners, tokens, logits = live.nonzero()[:, 0], state.tokens[live], state.first
        if tokens.shape[-1] and len(owners):
            if self.ranks is not None:
                self.ranks.any(True)  # those that have ended make the same call, in finish
            past = tokens.shape[-1] - 1
            logits = self.network.extend(state.cache, tokens[:, -1:], owners, past).squeeze(1)
        log_probs = self._normalize(logits[: len(owners)], tokens, owners)
        if len(owners) == live.numel():
            log_probs = log_probs.view(*live.shape, -1)
        else:
            log_probs = self._scatter(log_probs, live)
        return log_probs, state._replace(log_probs=log_probs)

    def select(self, state: Beams, parents: Tensor, symbols: Tensor) -> Beams:
        """Append a token to the selected completions; those that end leave the cache."""
        if state.log_probs is None:
            raise RuntimeError("select was called before step; expected step first. Call step.")
        index = parents * state.log_probs.shape[-1] + symbols
        possible = state.log_probs.flatten(-2).gather(-1, index) > -torch.inf
        row = state.row.gather(-1, parents)
        live = possible & (row >= 0) & ~self._ends(symbols)
        kept = row[live]
        if not torch.equal(kept, torch.arange(int(state.row.max()) + 1, device=kept.device)):
            state.cache.reorder_cache(kept)
        numbers = torch.arange(len(kept), device=kept.device)
        row = torch.full_like(row, -1).masked_scatter(live, numbers)
        history = state.tokens.gather(
            -2, parents.unsqueeze(-1).expand(*parents.shape, state.tokens.shape[-1])
        )
        tokens = torch.cat([history, symbols.unsqueeze(-1)], dim=-1)
        return Beams(tokens, row, state.cache, state.first)

    @torch.no_grad()
    def finish(self) -> None:
        """End a search: go on calling the model until the searches of all ranks have ended."""
        if self.ranks is None or self.spare is None:
            return
        nothing = torch.zeros(1, dtype=torch.long, device=self.ranks.device)
        while self.ranks.any(False):
            self.network.extend(fork(self.spare), nothing.unsqueeze(-1), nothing, 0)
        self.spare = None

    def log_prob(self, value: Tensor) -> Tensor:
        """Compute the log-probabilities of completions, with gradient, for all tokens at once.

        Args:
            value: token ids, (batch, k, n). Tokens after the end of a completion do not count.

        Returns:
            (batch, k)
        """
        self.finish()
        lengths = self.tokens.lengths(value)
        value = value[..., : int(lengths.max()) if lengths.numel() else 0]
        first, cache = self.network.prefill() if self.cached else (None, None)
        if self.chunk is None:
            return self._log_prob(value, lengths, first, cache)
        check_count("chunk", self.chunk)
        parts = [
            # Activations are computed again in the backward pass, so only those of one chunk are kept.
            checkpoint(self._log_prob, v, n, first, cache, use_reentrant=False)
            for v, n in zip(value.split(self.chunk, 1), lengths.split(self.chunk, 1), strict=True)
        ]
        return torch.cat(parts, dim=1)

    def filled(self, sample: Sample) -> Sample:
        """Return the sample with padding after the end of each completion."""
        steps = torch.arange(sample.value.shape[-1], device=sample.value.device)
        counts = steps < self.tokens.lengths(sample.value).unsqueeze(-1)
        return replace(sample, value=torch.where(counts, sample.value, self.tokens.pad))

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
        counts = torch.arange(n, device=value.device) < lengths.flatten().unsqueeze(-1)
        return self._total(logits, tokens, owners, counts).view(batch, k)

    def _total(self, logits: Tensor, tokens: Tensor, owners: Tensor, counts: Tensor) -> Tensor:
        """The sum of the log-probabilities of the tokens that count, (rows,)."""
        if self.processor is None:
            logits = logits.to(working_dtype(logits.dtype))
            chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
            return torch.where(counts, chosen - logits.logsumexp(-1), 0.0).sum(-1)
        total = torch.zeros_like(logits[:, 0, 0], dtype=working_dtype(logits.dtype))
        for t in range(tokens.shape[-1]):
            rows = counts[:, t].nonzero().squeeze(-1)
            log_probs = self._normalize(logits[rows, t], tokens[rows, :t], owners[rows])
            chosen = log_probs.gather(-1, tokens[rows, t].unsqueeze(-1)).squeeze(-1)
            total = total.index_add(0, rows, chosen)
        return total

    def _normalize(self, logits: Tensor, tokens: Tensor, owners: Tensor) -> Tensor:
        """The log-probabilities of the next token of every row, after the processor if there is one."""
        logits = logits.to(working_dtype(logits.dtype))
        if self.processor is None:
            return torch.log_softmax(logits, -1)
        logits = self.processor(self.network.context(tokens, owners), logits)
        masked = (logits == -torch.inf).all(-1)
        if bool(masked.any()):
            raise ValueError(
                f"logits_processor masks every token after {tokens[masked][0].tolist()}, a "
                f"completion of prompt {int(owners[masked][0])}; expected at least one "
                "token with a finite logit. Change the processor."
            )
        return torch.log_softmax(logits, -1)

    def _scatter(self, log_probs: Tensor, live: Tensor) -> Tensor:
        """Insert rows for completions that have ended, whose next token is the end with certainty."""
        every = log_probs.new_full((*live.shape, log_probs.shape[-1]), -torch.inf)
        every[..., self.end or 0] = 0.0
        every[live] = log_probs
        return every

    def _ends(self, symbols: Tensor) -> Tensor:
        ends = torch.tensor(self.tokens.ends, device=symbols.device, dtype=symbols.dtype)
        return torch.isin(symbols, ends)


def check_value(value: Tensor, batch: int) -> None:
    """Check that completions are token ids, (batch, k, n)."""
    if value.dim() != 3 or value.dtype != torch.long:
        raise ValueError(
            f"value has shape {tuple(value.shape)} and dtype {value.dtype}; expected token ids "
            "(batch, k, n) in torch.long, as sample_completions returns."
        )
    check_shape("value", value, (batch, *value.shape[1:]), "completions of every prompt")
