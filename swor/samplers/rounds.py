r"""Distinct outcomes of an engine that draws many at once, in a few rounds.

The first k distinct values of independent draws are an ordered sample without replacement. A round asks, for
every element of the batch at once, for as many draws as are missing, and keeps first appearances. Draws of a
later round may leave out any of the outcomes that were kept before: given that it is new, a draw from $p$
restricted to a set that contains all new outcomes has the distribution $p$ restricted to the new outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from swor._checks import DRAW_WHOLE, check_count
from swor.samplers._distinct import threshold, to_sample
from swor.samplers._tables import DistinctValues
from swor.samplers.streams import NOTHING_LEFT, check_new, drawn_mass, to_log_prob, to_pair
from swor.types import Sample

Outcome = TypeVar("Outcome", bound=Hashable)
Outcomes = Sequence[Sequence[Outcome]]  # for every element of the batch, in the order drawn
Draws = Sequence[Sequence[tuple[Outcome, float | Tensor]]]


class DistinctRounds(Generic[Outcome]):
    r"""Distinct outcomes for every element of a batch, from a source that draws many at once.

    $$x_{k+1} \sim p(x) / \Bigl(1 - \sum_{i \le k} p(x_i)\Bigr), \qquad x \ne x_1, \dots, x_k$$

    If no draws coincide, one round is enough. A source that leaves out what was kept before wastes few
    draws, and it needs few rounds for a confident distribution as well. A source that cannot do so draws
    independently in every round.

    Args:
        source: from the number of missing outcomes of every element of the batch, and from the outcomes that
            were kept so far, to new draws: for every element, pairs of an outcome and its log-probability
            under $p$ itself. There should be as many as are missing, none where none are missing. They have
            to be independent of one another, from $p$ or from $p$ without some of the outcomes that were
            kept, and in an order that does not depend on their values. Do not sort them by the time at which
            an engine finished them, since short answers are finished early.
        batch: the number of elements of the batch.
        log_rest: from the outcomes that were kept to the log of the mass of all others, for every element of
            the batch; −inf if there are no others. None for $\log(1 - \sum p)$, which is as precise as the
            log-probabilities; a mass of at most one
            millionth counts as nothing where more outcomes are missing.
        generator: the source of randomness of ``kappa``, on the CPU.

    Attributes:
        outcomes: the distinct outcomes of every element of the batch, in the order drawn.
        rounds: the number of calls of the source.

    >>> dice = torch.Generator().manual_seed(0)
    >>> def roll(missing, kept):
    ...     faces = [torch.randint(6, (m,), generator=dice).tolist() for m in missing]
    ...     return [[(face, -math.log(6)) for face in row] for row in faces]
    >>> distinct = DistinctRounds(roll, batch=2)
    >>> distinct.draw(4)
    >>> [len(set(faces)) for faces in distinct.outcomes]
    [4, 4]
    >>> distinct.sample().log_rest.exp()
    tensor([0.3333, 0.3333])
    """

    def __init__(
        self,
        source: Callable[[Sequence[int], Outcomes[Outcome]], Draws[Outcome]],
        batch: int,
        *,
        log_rest: Callable[[Outcomes[Outcome]], Sequence[float]] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        check_count("batch", batch)
        self.source, self.generator, self.k, self.rounds = source, generator, 0, 0
        self.outcomes: list[list[Outcome]] = [[] for _ in range(batch)]
        self._log_outside = log_rest
        self._rest = [0.0] * batch
        self._position: list[dict[Outcome, int]] = [{} for _ in range(batch)]  # among all draws
        self._draws = [0] * batch
        self._repeats = [0] * batch  # since the last new outcome
        self._log_p: list[list[Tensor]] = [[] for _ in range(batch)]
        self._kappa: Tensor | None = None
        self._finished = True

    @property
    def log_rest(self) -> Tensor:
        """The log of the probability mass of the outcomes that were not drawn, (batch,), in float64."""
        return torch.tensor(self._rest, dtype=torch.float64, device="cpu")

    def draw(self, n: int = 1, *, allow_fewer: bool = False) -> None:
        """Draw n more outcomes for every element of the batch.

        Args:
            n: the number of outcomes. It is an error if an element of the batch has fewer left.
            allow_fewer: whether an element of the batch may have fewer left. All of them are then drawn,
                and :meth:`sample` fills the places that are left over with the log-probability −inf.
        """
        check_count("n", n)
        self._check_finished()
        k = self.k + n
        while any(missing := self._missing(k, allow_fewer)):
            self._finished = False
            draws = self.source(missing, self.outcomes)
            _check_draws(draws, missing)
            for element, pairs in enumerate(draws):
                self._keep(element, pairs, k)
            self.rounds += 1
            self._kappa, self._rest = None, self._masses(k)
            self._check_new()
        self.k, self._finished = k, True

    def sample(self) -> Sample:
        """Return all outcomes so far, in the order drawn.

        Returns:
            A sample whose ``value`` (batch, k) contains the positions of the outcomes among all draws of
            their element of the batch, the repetitions included.
        """
        self._check_finished()
        if self.k == 0:
            raise ValueError("there is no outcome yet; expected at least one. Call draw first.")
        log_p = torch.stack([self._padded(row) for row in self._log_p])
        exact = log_p.detach().to("cpu", torch.float64)
        if self._kappa is None:
            self._kappa = threshold(exact, self.log_rest, self.generator)
        position = [[*row.values(), *[0] * (self.k - len(row))] for row in self._position]
        value = torch.tensor(position, device="cpu")
        return to_sample(DistinctValues(value, exact, self.log_rest, self._kappa), log_p)

    def _check_finished(self) -> None:
        if not self._finished:
            raise RuntimeError(
                "an earlier call of draw ended with an error, so that elements of the batch have outcomes "
                "in numbers that depend on the draws; expected a new object. Estimates would be biased."
            )

    def _check_new(self) -> None:
        """Check that new outcomes appear at least as often as the mass outside says."""
        for element, (log_rest, repeats) in enumerate(zip(self._rest, self._repeats, strict=True)):
            check_new(repeats, math.exp(log_rest), f" for element {element} of the batch")

    def _missing(self, k: int, allow_fewer: bool) -> list[int]:
        """Return how many outcomes are missing of every element that has some left."""
        missing = []
        for element, kept in enumerate(self.outcomes):
            exhausted = self._rest[element] == -math.inf
            if exhausted and len(kept) < k and not allow_fewer:
                raise ValueError(
                    f"element {element} of the batch has only {len(kept)} different outcomes, and all of "
                    f"them were drawn; expected at least {k} of every element. Draw fewer{DRAW_WHOLE}."
                )
            missing.append(0 if exhausted else k - len(kept))
        return missing

    def _keep(self, element: int, pairs: Sequence[tuple[Outcome, float | Tensor]], k: int) -> None:
        """Keep the outcomes that are new, up to k of them."""
        position, log_p = self._position[element], self._log_p[element]
        for outcome, given in map(to_pair, pairs):
            if outcome not in position and len(position) < k:
                position[outcome] = self._draws[element]
                self.outcomes[element].append(outcome)
                log_p.append(to_log_prob(outcome, given))
                self._repeats[element] = -1
            self._draws[element] += 1
            self._repeats[element] += outcome in position

    def _masses(self, k: int) -> list[float]:
        """Return the log of the mass outside of every element of the batch."""
        if self._log_outside is not None:
            return [float(given) for given in self._log_outside(self.outcomes)]
        left = [(1.0 - drawn_mass(log_p), len(log_p)) for log_p in self._log_p]
        return [
            -math.inf if rest <= (NOTHING_LEFT if found < k else 0.0) else math.log(rest)
            for rest, found in left
        ]

    def _padded(self, log_p: list[Tensor]) -> Tensor:
        """Return log-probabilities of k outcomes, −inf where there are fewer."""
        row = torch.stack(log_p)
        return torch.nn.functional.pad(row, (0, self.k - len(row)), value=-torch.inf)


def _check_draws(draws: Draws[Outcome], missing: Sequence[int]) -> None:
    """Check that a source has drawn something where something is missing."""
    if len(draws) != len(missing):
        raise ValueError(
            f"the source returned draws for {len(draws)} elements of the batch; expected {len(missing)}, "
            "with an empty list where nothing is missing."
        )
    for element, (pairs, m) in enumerate(zip(draws, missing, strict=True)):
        if m > 0 and len(pairs) == 0:
            raise ValueError(
                f"the source returned no draws for element {element} of the batch; expected {m}, as many "
                "as are missing."
            )
