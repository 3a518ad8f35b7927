"""An independent product of categoricals, as a sequence model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from swor.checks import check_k, check_log_probs, may_inspect
from swor.math.logspace import working_dtype
from swor.samplers.beams import search
from swor.samplers.categorical import independent
from swor.samplers.children import best_children
from swor.samplers.model import Found
from swor.samplers.stream import first_distinct, log_mass_outside, threshold

JOINT_TABLE = 1024  # outcomes up to which the product is sampled as one categorical
FUSED = 32  # categories up to which variables are searched together
DRAWS = 4  # draws to continue a stream with, per sample wanted, before a search


@dataclass(frozen=True)
class Factorized:
    r"""$p(x) = \prod_i p_i(x_i)$: n independent variables of c categories each.

    One variable over $c^n$ outcomes, to be sampled by :func:`swor.stochastic_beam_search`,
    :func:`swor.beam_search` and :func:`swor.ancestral_sample`.

    Attributes:
        log_probs: normalised log-probabilities, (*batch, n, c); −inf masks a category.
    """

    log_probs: Tensor

    def __post_init__(self) -> None:
        check_log_probs("log_probs", self.log_probs)
        if self.log_probs.dim() < 2 or self.log_probs.shape[-2] < 1:
            raise ValueError(
                f"log_probs has shape {tuple(self.log_probs.shape)}; expected (*batch, n, c): n "
                "variables of c categories. For a single variable use gumbel_top_k."
            )

    @property
    def length(self) -> int:
        """The number of variables."""
        return self.log_probs.shape[-2]

    @property
    def categories(self) -> int:
        """The number of categories of a variable."""
        return self.log_probs.shape[-1]

    @property
    def end(self) -> None:
        """All sequences have the same length."""
        return None

    def start(self) -> int:
        """The variable that comes next."""
        return 0

    def step(self, state: int) -> tuple[Tensor, int]:
        """The same log-probabilities for every beam."""
        return self.log_probs[..., state, :].unsqueeze(-2), state

    def select(self, state: int, parents: Tensor, symbols: Tensor) -> int:
        """On to the next variable."""
        return state + 1

    def log_prob(self, value: Tensor) -> Tensor:
        """The sum of the log-probabilities of the variables, (*batch, k)."""
        return self.log_probs.gather(-1, value.mT).sum(-2)

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """Outcomes that may repeat, (*batch, k, n)."""
        return independent(self.log_probs, k, generator).mT

    def distinct(self, k: int, generator: torch.Generator | None) -> Found:
        """Outcomes that differ, by whichever is fastest of three ways that are equal in law.

        A small product is one categorical; a large one is a stream of independent draws, where
        their values may be looked at; otherwise it is searched, several variables in a step.
        """
        check_k(k, self.categories**self.length)
        full = Factorized(self.log_probs.to(working_dtype(self.log_probs.dtype)))
        if self.categories**self.length <= JOINT_TABLE:
            return full._of_table(k, generator)
        if may_inspect(self.log_probs):
            return full._of_stream(k, generator)
        return full._of_search(k, generator)

    def _of_table(self, k: int, generator: torch.Generator | None) -> Found:
        table = fuse(self.log_probs, self.length).squeeze(-2)
        found = best_children(table.unsqueeze(-2), None, k, generator)
        value = unfuse(found.position.unsqueeze(-1), self.categories, self.length)
        return Found(value, self.log_prob(value), found.log_rest, found.kappa)

    def _of_search(self, k: int, generator: torch.Generator | None) -> Found:
        size = 1
        while self.categories ** (size + 1) <= FUSED and size < self.length:
            size += 1
        found = search(Factorized(fuse(self.log_probs, size)), k, generator=generator)
        value = unfuse(found.value, self.categories, size)[..., : self.length]
        return found._replace(value=value)

    def _of_stream(self, k: int, generator: torch.Generator | None) -> Found:
        batch = self.log_probs.shape[:-2]
        flat = Factorized(self.log_probs.reshape(-1, *self.log_probs.shape[-2:]))
        stream = flat.independent(k, generator)
        value, short = first_distinct(stream, self.categories, k)
        if len(short):
            value[short] = Factorized(flat.log_probs[short])._continue(stream[short], k, generator)
        log_p = flat.log_prob(value)
        log_rest = log_mass_outside(flat.log_probs, value, log_p)
        kappa = threshold(log_p, log_rest, generator)
        return Found(*(x.reshape((*batch, *x.shape[1:])) for x in (value, log_p, log_rest, kappa)))

    def _continue(self, stream: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
        """Draw on where a stream had too few distinct values; search where it still has."""
        stream = torch.cat([stream, self.independent(DRAWS * k, generator)], dim=-2)
        value, short = first_distinct(stream, self.categories, k)
        if len(short):
            fresh = Factorized(self.log_probs[short])._of_search(k, generator).value
            stream = torch.cat([stream[short], fresh], dim=-2)
            value[short], _ = first_distinct(stream, self.categories, k)
        return value


def fuse(log_probs: Tensor, size: int) -> Tensor:
    """Every ``size`` variables as one: from (*batch, n, c) to (*batch, groups, c**size)."""
    n, c = log_probs.shape[-2:]
    certain = torch.full_like(log_probs[..., :1, :], -torch.inf)
    certain[..., 0] = 0.0
    missing = -n % size
    padded = torch.cat([log_probs, certain.expand(*log_probs.shape[:-2], missing, c)], dim=-2)
    groups = padded.unflatten(-2, (-1, size))
    table: Tensor = groups[..., 0, :]
    for i in range(1, size):
        table = (table.unsqueeze(-1) + groups[..., i, :].unsqueeze(-2)).flatten(-2)
    return table


def unfuse(symbols: Tensor, categories: int, size: int) -> Tensor:
    """The variables of fused symbols: from (*batch, k, groups) to (*batch, k, groups * size)."""
    powers = torch.tensor([categories**i for i in reversed(range(size))], device=symbols.device)
    digits = torch.floor_divide(symbols.unsqueeze(-1), powers).remainder(categories)
    return digits.flatten(-2)
