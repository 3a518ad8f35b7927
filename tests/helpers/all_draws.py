"""Every combination of what the samplers could draw, in their place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations, product
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

import swor
from swor.diagnostics.all_samples import all_samples
from swor.math.ratios import log_prob_ordered
from swor.samplers._tables import log_mass_outside
from swor.samplers.distributions import support
from swor.types import Scheme

Generator = torch.Generator | None


class Law(NamedTuple):
    """Which samples of a scheme are gone through.

    Attributes:
        ordered: every order of a sample, or each set, or multiset, once.
        kappa: every threshold of a sample without replacement, or none.
        reverse: each in reverse order.
    """

    ordered: bool
    kappa: bool
    reverse: bool = False


WHOLE = Law(ordered=True, kappa=True)


class AllDraws:
    """Stands in for the samplers, and goes through every combination of what they could draw.

    All combinations at once, on a single batch axis; or, with ``position``, one of them for a batch
    whose elements are drawn together.

    Args:
        sizes: the number of options at every draw; None to find them out with the first options.
        position: the number of the combination.
        law: which samples of a scheme to go through.
    """

    def __init__(
        self,
        sizes: list[int] | None = None,
        position: int | None = None,
        law: Law = WHOLE,
    ) -> None:
        self.law = law
        self.recording = sizes is None
        self.sizes: list[int] = sizes or []
        self.total = math.prod(self.sizes)
        self.stride = 1
        self.position = position
        self.log_probability = torch.zeros((), dtype=torch.float64)

    def _choose(self, options: int) -> Tensor:
        """Which of the options every combination takes, (combinations,)."""
        if self.recording:
            self.sizes.append(options)
            return torch.zeros(1, dtype=torch.long)
        each = torch.arange(self.total) if self.position is None else torch.tensor([self.position])
        digit = each // self.stride % options
        self.stride *= options
        return digit

    def _lead(self, log_probs: Tensor) -> torch.Size:
        """The axes of the variables that are drawn together."""
        return log_probs.shape[:-1] if self._together else log_probs.shape[1:-1]

    def _rows(self, log_probs: Tensor, chosen: Tensor) -> Tensor:
        """Give every variable its part of the rows that were chosen, (combinations, variables · k)."""
        lead = self._lead(log_probs)
        return chosen.reshape(*(lead if self._together else (len(chosen), *lead)), -1)

    @property
    def _together(self) -> bool:
        return self.position is not None

    def _count(self, log_p: Tensor) -> None:
        """Take in the log-probabilities of what was chosen."""
        own = log_p.detach().double()
        self.log_probability = self.log_probability + (
            own.sum() if self._together else own.flatten(1).sum(-1)
        )

    def independent(self, log_probs: Tensor, k: int, generator: Generator) -> Tensor:
        c, places = log_probs.shape[-1], self._lead(log_probs).numel() * k
        option = self._choose(c**places)
        # The first options are all 0, and the number of options may be too large for a tensor.
        digits = [option if self.recording else option // c**i % c for i in range(places)]
        value = self._rows(log_probs, torch.stack(digits, dim=-1))
        self._count(log_probs.gather(-1, value))
        return value

    def gumbel_top_k(
        self, log_probs: Tensor, k: int, *, generator: Generator = None
    ) -> swor.Sample:
        orders = list(permutations(range(log_probs.shape[-1]), k))
        together = list(product(orders, repeat=self._lead(log_probs).numel()))
        every = torch.tensor([sum(combination, ()) for combination in together])
        value = self._rows(log_probs, every[self._choose(len(every))])
        log_p = log_probs.gather(-1, value)
        log_rest = log_mass_outside(log_probs.detach(), value)
        order = log_prob_ordered(log_p.detach(), log_rest)
        self._count(order.unsqueeze(-1))
        return swor.Sample(value, log_p, log_rest, scheme=Scheme.WITHOUT_REPLACEMENT)

    def draw(self, scheme: Scheme, dist: Distribution, k: int, generator: Generator) -> swor.Sample:
        """Every sample of a scheme, thresholds included."""
        domain = support(dist)
        log_probs = domain.log_p.detach().reshape(-1, domain.log_p.shape[-1])
        ordered, kappa, reverse = self.law
        every = all_samples(log_probs[0], k, scheme, ordered=ordered, kappa=kappa)  # all are alike
        elements = len(log_probs) if self._together else 1
        combinations = list(product(range(len(every.probability)), repeat=elements))
        chosen = torch.tensor(combinations)[self._choose(len(combinations))]
        row = chosen[0] if self._together else chosen[:, 0]
        self._count(every.probability[row].log().unsqueeze(-1))
        index = every.sample.value[row]
        index = index.flip(-1) if reverse else index
        event = domain.value.shape[2:]
        place = index.reshape(*index.shape, *(1 for _ in event))
        chosen_parts = {
            name: None if part is None else part[row]
            for name in ("log_rest", "kappa", "log_q")
            for part in (getattr(every.sample, name),)
        }
        return swor.Sample(
            value=torch.take_along_dim(domain.value, place, 1),
            log_p=domain.log_p.gather(-1, index),
            scheme=scheme,
            **chosen_parts,
        )


@contextmanager
def scripted(draws: AllDraws) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("samplers.categorical", "samplers.products"):
            patch.setattr(f"swor.{module}.independent", draws.independent)
        patch.setattr("swor.estimators.local.gumbel_top_k", draws.gumbel_top_k)
        for module in ("score_function", "additive", "tangents"):
            patch.setattr(f"swor.estimators.{module}.draw", draws.draw)
        yield
