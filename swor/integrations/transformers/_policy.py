r"""The completions of prompts as a :class:`swor.SequenceModel`: $p(x) = \prod_t p(x_t \mid x_{<t})$."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from swor.integrations.transformers._caches import arrange, fork, keep
from swor.integrations.transformers._ranks import Ranks
from swor.integrations.transformers._scoring import Scorer
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
        scorer: computes log-probabilities with gradient; its head has the distribution of the next token.
        length: the largest number of tokens in a completion.
        ranks: the ranks that must call the model equally often, if there are others.
    """

    def __init__(self, scorer: Scorer, length: int, *, ranks: Ranks | None = None) -> None:
        self.scorer, self.head, self.network = scorer, scorer.head, scorer.network
        self.tokens, self.end = self.head.tokens, self.head.end
        self.length, self.ranks = length, ranks
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
        live = possible & (row >= 0) & ~self._ends(symbols)
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

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-probabilities of completions (batch, k, n) with gradient, (batch, k)."""
        self.finish()
        return self.scorer.log_prob(value)

    def filled(self, sample: Sample) -> Sample:
        """Return the sample with padding after the end of each completion."""
        steps = torch.arange(sample.value.shape[-1], device=sample.value.device)
        counts = steps < self.tokens.lengths(sample.value).unsqueeze(-1)
        return replace(sample, value=torch.where(counts, sample.value, self.tokens.pad))

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

    def _ends(self, symbols: Tensor) -> Tensor:
        ends = torch.tensor(self.tokens.ends, device=symbols.device, dtype=symbols.dtype)
        return torch.isin(symbols, ends)


class RecordingPolicy(CompletionPolicy):
    """A policy that remembers the log-probabilities of all steps of a search, for :meth:`scores`."""

    def __init__(self, scorer: Scorer, length: int, *, ranks: Ranks | None = None) -> None:
        super().__init__(scorer, length, ranks=ranks)
        self.history: list[
            tuple[Tensor, Tensor]
        ] = []  # the tokens before each step, and its result

    def step(self, state: PartialCompletions) -> tuple[Tensor, PartialCompletions]:
        """Return the log-probabilities of the next token, and remember them."""
        log_probs, state = super().step(state)
        self.history.append((state.tokens, log_probs))
        return log_probs, state

    def scores(self, value: Tensor) -> tuple[Tensor, ...]:
        """Return the log-probabilities along completions (batch, k, n), each (batch · k, symbols).

        The completions are as the search returned them. After the end of one, padding is certain.
        """
        lengths, scores = self.tokens.lengths(value), []
        for t, (tokens, log_probs) in enumerate(self.history):
            same = (value[:, :, None, :t] == tokens[:, None]).all(-1)
            beam = same.long().argmax(-1, keepdim=True).expand(-1, -1, log_probs.shape[-1])
            padding = torch.full_like(log_probs[:, :1], -torch.inf)
            padding[..., self.tokens.pad] = 0.0
            over = (lengths <= t).unsqueeze(-1)
            scores.append(torch.where(over, padding, log_probs.gather(1, beam)).flatten(0, 1))
        return tuple(scores)
