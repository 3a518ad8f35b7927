"""A product of independent categorical variables, sampled as one variable over all combinations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from swor._checks import (
    DRAW_WHOLE,
    check_k,
    check_log_probs,
    check_normalized,
    check_possible,
    may_inspect,
)
from swor.math._logspace import without_autocast, working_dtype
from swor.samplers._beams import search_beams
from swor.samplers._distinct import distinct, distinct_values, independent, log_rest_and_kappa
from swor.samplers._tables import DistinctValues

Encoding = Literal["index", "one_hot", "binary"]

JOINT_TABLE = 1024  # largest number of outcomes of a product that is sampled as one categorical
FUSED = 32  # largest number of categories of variables that are merged for a search
OFTEN = 1.0  # repeated draws per sample from which on a search is as fast as a stream
DRAWS = 4  # additional draws of a stream per sample, before a search


@dataclass(frozen=True, eq=False)
class Factorized:
    r"""A product of n independent categorical variables of c categories each.

    $$p(x) = \prod_i p_i(x_i)$$

    It is one variable over $c^n$ outcomes. Sample it with :func:`swor.stochastic_beam_search`,
    :func:`swor.beam_search` or :func:`swor.ancestral_sample`, which return indices of categories.
    :func:`swor.sample` and the estimators use it for distributions of ``torch.distributions``; all attributes
    except ``log_probs`` describe the encoding of such a distribution.

    Attributes:
        log_probs: normalised log-probabilities, (*batch, n, c); −inf masks a category.
        event: the shape of the n variables in an outcome, () for a single variable; None means (n,).
        encoding: the form of a category: its index, a one-hot vector, or 0 and 1.
        value_dtype: the dtype of one-hot and binary outcomes; None means that of ``log_probs``.

    >>> coins = Factorized(torch.full((3, 2), 0.5).log())
    >>> coins.outcomes, coins.log_prob(torch.tensor([[0, 1, 1]])).exp()
    (8, tensor([0.1250]))
    """

    log_probs: Tensor
    event: tuple[int, ...] | None = None
    encoding: Encoding = "index"
    value_dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        check_log_probs("log_probs", self.log_probs)
        if self.log_probs.dim() < 2 or self.log_probs.shape[-2] < 1:
            raise ValueError(
                f"log_probs has shape {tuple(self.log_probs.shape)}; expected (*batch, n, c): n "
                "variables of c categories. For a single variable use gumbel_top_k."
            )

    @property
    def batch(self) -> torch.Size:
        """The shape of the batch."""
        return self.log_probs.shape[:-2]

    @property
    def length(self) -> int:
        """The number of variables."""
        return self.log_probs.shape[-2]

    @property
    def categories(self) -> int:
        """The number of categories of a variable."""
        return self.log_probs.shape[-1]

    @property
    def outcomes(self) -> int:
        """The number of outcomes, that is, of combinations of categories."""
        return int(self.categories**self.length)

    @property
    def end(self) -> None:
        """None: all sequences have the same length."""
        return None

    def start(self) -> int:
        """Return the index of the first variable."""
        return 0

    def step(self, state: int) -> tuple[Tensor, int]:
        """Return the log-probabilities of the next variable, which are the same for every beam."""
        return self.log_probs[..., state, :].unsqueeze(-2), state

    def select(self, state: int, parents: Tensor, symbols: Tensor) -> int:
        """Return the index of the next variable."""
        return state + 1

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the sum of the log-probabilities of the variables, (*batch, k)."""
        return self.log_probs.gather(-1, value.mT).sum(-2)

    def in_working_precision(self) -> Factorized:
        """Return the same variables; half precision is converted to float32 and normalised again."""
        dtype = working_dtype(self.log_probs.dtype)
        if dtype == self.log_probs.dtype:
            return self
        log_probs = self.log_probs.to(dtype).log_softmax(-1)
        return replace(self, log_probs=log_probs, value_dtype=self.log_probs.dtype)

    def encode(self, index: Tensor) -> Tensor:
        """Convert indices (*batch, k, n) to outcomes in the encoding of the distribution."""
        index = index.unflatten(-1, self.event) if self.event else index
        index = index.squeeze(-1) if self.event == () else index
        dtype = self.value_dtype or self.log_probs.dtype
        if self.encoding == "one_hot":
            return F.one_hot(index, self.categories).to(dtype)
        return index.to(dtype) if self.encoding == "binary" else index

    def decode(self, value: Tensor) -> Tensor:
        """Convert outcomes in the encoding of the distribution to indices, (*batch, k, n)."""
        index = value.argmax(-1) if self.encoding == "one_hot" else value.long()
        if self.event is not None:
            axes = len(self.event)
            index = index.flatten(-axes) if axes else index.unsqueeze(-1)
        if index.shape[:-2] != self.batch or index.shape[-1] != self.length:
            event = (self.length,) if self.event is None else self.event
            one_hot = (self.categories,) if self.encoding == "one_hot" else ()
            raise ValueError(
                f"value has shape {tuple(value.shape)}; expected {(*self.batch, 'k', *event, *one_hot)}, "
                "samples of this distribution. Pass sample.value."
            )
        return index

    def encode_relaxed(self, y: Tensor) -> Tensor:
        """Convert points of the simplex, (*batch, k, n, c), to relaxed outcomes."""
        y = y.unflatten(-2, self.event) if self.event else y
        y = y.squeeze(-2) if self.event == () else y
        y = y[..., 1] if self.encoding == "binary" else y
        return y.to(self.value_dtype or self.log_probs.dtype)

    def one_hot(self, index: Tensor) -> Tensor:
        """Convert indices (*batch, k, n) to one-hot vectors, (*batch, k, n, c)."""
        return F.one_hot(index, self.categories).to(self.log_probs.dtype)

    def independent(self, k: int, generator: torch.Generator | None) -> Tensor:
        """Draw outcomes that may repeat, as indices, (*batch, k, n)."""
        return independent(self.log_probs.detach(), k, generator).mT

    def distinct(
        self, k: int, generator: torch.Generator | None, *, allow_fewer: bool = False
    ) -> DistinctValues:
        """Draw distinct outcomes, as indices, by the fastest of three methods with the same distribution.

        A single variable or a small product is sampled as one categorical variable. A large product is
        sampled from a stream of independent draws if tensor values may be inspected and draws do not often
        repeat themselves, and otherwise by a search that fixes several variables in each step.
        """
        check_k(k)
        full = Factorized(self.log_probs.to(working_dtype(self.log_probs.dtype)))
        if self.length == 1 or self.outcomes <= JOINT_TABLE:
            return full._from_table(k, generator, self.log_probs.dtype, allow_fewer=allow_fewer)
        if allow_fewer:
            found = full._from_search(k, generator, allow_fewer=True).padded(k)
        else:
            check_k(k, self.outcomes, DRAW_WHOLE)
            if may_inspect(self.log_probs):
                whole = self.in_working_precision()
                often = whole._repeated(k) > OFTEN
                if often or whole is not self:  # otherwise, the stream checks each variable
                    check_normalized(full.log_probs.exp().sum(-1), self.log_probs.dtype)
                if not often:
                    return whole._from_stream(k, generator)
            found = full._from_search(k, generator)
            check_possible(found.log_p, cure=DRAW_WHOLE)
        check_normalized(found.total(), self.log_probs.dtype, steps=self.length)
        return found

    def _repeated(self, k: int) -> float:
        r"""Return about how many of k independent draws repeat another, from $\sum_x p(x)^2$."""
        equal = (2.0 * self.log_probs.detach()).logsumexp(-1).sum(-1).exp()
        return k * equal.mean().item()

    def _from_table(
        self,
        k: int,
        generator: torch.Generator | None,
        dtype: torch.dtype | None = None,
        *,
        allow_fewer: bool = False,
    ) -> DistinctValues:
        table = fuse(self.log_probs, self.length).squeeze(-2)
        found = distinct(
            table, k, generator, dtype=dtype, factors=self.length, allow_fewer=allow_fewer
        )
        value = unfuse(found.value.unsqueeze(-1), self.categories, self.length)
        return found._replace(value=value)

    def _from_search(
        self, k: int, generator: torch.Generator | None, *, allow_fewer: bool = False
    ) -> DistinctValues:
        size = 1
        while self.categories ** (size + 1) <= FUSED and size < self.length:
            size += 1
        fused = Factorized(fuse(self.log_probs, size))
        found, _ = search_beams(fused, k, generator=generator, allow_fewer=allow_fewer)
        value = unfuse(found.value, self.categories, size)[..., : self.length]
        return found._replace(value=value)

    def _from_stream(self, k: int, generator: torch.Generator | None) -> DistinctValues:
        if self.log_probs.dim() != 3:
            flat = Factorized(self.log_probs.reshape(-1, *self.log_probs.shape[-2:]))
            parts = flat._from_stream(k, generator)
            return DistinctValues(*(x.reshape((*self.batch, *x.shape[1:])) for x in parts))

        def rows(chosen: Tensor) -> Factorized:
            return Factorized(self.log_probs[chosen])

        def search(chosen: Tensor) -> Tensor:
            found = rows(chosen)._from_search(k, generator)
            check_possible(found.log_p, cure=DRAW_WHOLE)
            return found.value

        value = distinct_values(
            self.independent(k, generator),
            k,
            code=lambda x: codes(x, self.categories),
            longer=[
                lambda short: rows(short).independent(DRAWS * k, generator),
                search,
            ],
        )
        log_p = self.log_prob(value)
        log_rest, kappa = log_rest_and_kappa(
            log_p,
            torch.ones_like(log_p[:, :1]),
            lambda most: log_mass_outside_product(self.log_probs[most], value[most]),
            generator,
        )
        return DistinctValues(value, log_p, log_rest, kappa)


def fuse(log_probs: Tensor, size: int) -> Tensor:
    """Merge every ``size`` variables into one: from (*batch, n, c) to (*batch, groups, c**size)."""
    n, c = log_probs.shape[-2:]
    padded, missing = log_probs, -n % size
    if missing:
        certain = torch.full_like(log_probs[..., :1, :], -torch.inf)
        certain[..., 0] = 0.0
        padded = torch.cat([log_probs, certain.expand(*log_probs.shape[:-2], missing, c)], dim=-2)
    groups = padded.unflatten(-2, (-1, size))
    table: Tensor = groups[..., 0, :]
    for i in range(1, size):
        table = (table.unsqueeze(-1) + groups[..., i, :].unsqueeze(-2)).flatten(-2)
    return table


def unfuse(symbols: Tensor, categories: int, size: int) -> Tensor:
    """Split merged symbols into variables: from (*batch, k, groups) to (*batch, k, groups * size)."""
    powers = torch.tensor([categories**i for i in reversed(range(size))], device=symbols.device)
    digits = torch.floor_divide(symbols.unsqueeze(-1), powers).remainder(categories)
    return digits.flatten(-2)


def codes(value: Tensor, categories: int) -> Tensor:
    """Return integers (batch, draws) that are equal where the values (batch, draws, n) of a row are."""
    digits = 1
    while categories ** (digits + 1) < 2**62:
        digits += 1
    powers = torch.tensor([categories**i for i in range(digits)], device=value.device)
    code: Tensor
    code, *others = [(x * powers[: x.shape[-1]]).sum(-1) for x in value.split(digits, dim=-1)]
    for part in others:
        code = _rank(code) * value.shape[-2] + _rank(part)
    return code


def _rank(code: Tensor) -> Tensor:
    """Replace integers by small ones that are equal where they are, within each row."""
    ordered, position = code.sort(dim=-1)
    rank = F.pad((ordered[:, 1:] != ordered[:, :-1]).cumsum(-1), (1, 0))
    return torch.empty_like(code).scatter_(-1, position, rank)


def log_mass_outside_product(log_probs: Tensor, value: Tensor) -> Tensor:
    """Return the log of the mass outside distinct values of a product, as a sum, so that nothing cancels.

    It is the sum, over the prefixes of the values, of the mass of the next symbols that no value takes.
    """
    k = value.shape[-2]
    equal = value.unsqueeze(-2) == value.unsqueeze(-3)  # (batch, k, k, n)
    together = torch.cat([torch.ones_like(equal[..., :1]), equal[..., :-1]], dim=-1).cumprod(-1)
    together = together.bool()  # the same prefix before variable t
    taken = F.one_hot(value, log_probs.shape[-1])  # (batch, k, n, c)
    with without_autocast(log_probs):
        shared = together.to(log_probs.dtype)
        taken = torch.einsum("bstn,btnc->bsnc", shared, taken.to(log_probs.dtype))
    left = log_probs.unsqueeze(-3).masked_fill(taken > 0, -torch.inf).logsumexp(-1)
    chosen = log_probs.gather(-1, value.mT).mT
    prefix = torch.cat([torch.zeros_like(chosen[..., :1]), chosen[..., :-1]], dim=-1).cumsum(-1)
    before = torch.ones(k, k, dtype=torch.bool, device=value.device).tril(-1).unsqueeze(-1)
    counted = (together & before).any(-2)  # an earlier sample has this prefix
    return (prefix + left).masked_fill(counted, -torch.inf).flatten(-2).logsumexp(-1)
