"""Distinct runs of any program that makes random choices, drawn one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, SupportsFloat, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from swor._checks import check_count
from swor.math._logspace import working_dtype
from swor.math._murthy import murthy
from swor.samplers._distinct import threshold, to_sample
from swor.samplers._tables import DistinctValues
from swor.samplers._tree import Node, Walk
from swor.types import Sample

Choose = Callable[[Tensor], int]  # from log-probabilities (n,) to the index of an option
Result = TypeVar("Result")

PADDING = -1  # follows the last choice of a run


class DistinctRuns(Generic[Result]):
    r"""Runs of a program, no two of which make the same choices, as a sample without replacement.

    $$p(\text{run}) = \prod_t p(\text{choice}_t \mid \text{choices before it})$$

    The program is called with a function ``choose`` and calls ``choose(log_probs)`` for every random choice,
    as often as it likes. Every new run has the distribution of the program among the runs that were not
    drawn yet. At any time the runs are therefore a sample without replacement, and their number need not be
    known in advance. Use it for simulators and other programs. For a model that extends many sequences at
    a time, :class:`swor.DistinctSequences` is faster, and for a table of log-probabilities
    :func:`swor.gumbel_top_k`.

    After the same choices, the program must offer the same options with the same probabilities. Make a new
    object when these change, for instance after a step of an optimiser. Runs follow one another: neither the
    program itself nor another thread may draw during a run.

    Args:
        program: from ``choose`` to a result.
        cost: from a result to a number; None if the result is that number.
        generator: the source of randomness, on the CPU.

    Attributes:
        results: the results of the program, in the order of the runs.

    >>> import swor
    >>> coin = torch.tensor([0.5, 0.5]).log()
    >>> def flips_until_heads(choose):  # three at most
    ...     return next((n for n in range(1, 4) if choose(coin) == 0), 4)
    >>> runs = DistinctRuns(flips_until_heads)
    >>> runs.draw(4)
    >>> sorted(runs.results), runs.exhausted
    ([1, 2, 3, 4], True)
    >>> swor.unordered_set(runs.sample()).mean(runs.costs())  # 1/2 + 2/4 + 3/8 + 4/8
    tensor(1.8750)

    References:
        | Incremental Sampling Without Replacement for Sequence Models (Shi et al., 2020)
        | https://arxiv.org/abs/2002.09067
    """

    def __init__(
        self,
        program: Callable[[Choose], Result],
        *,
        cost: Callable[[Result], float | Tensor] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.program, self.cost, self.generator = program, cost, generator
        self.results: list[Result] = []
        self._root = Node()
        self._paths: list[Tensor] = []
        self._log_p: list[Tensor] = []
        self._given: list[Any] = []  # the costs as the program or the function of costs gave them
        self._costs: list[Tensor] = []  # of the first results, until more are asked for
        self._sample: Sample | None = None
        self._running = Lock()

    @property
    def k(self) -> int:
        """The number of runs."""
        return len(self.results)

    @property
    def log_rest(self) -> float:
        """Log of the probability mass of all runs that were not drawn."""
        return self._root.log_rest

    @property
    def exhausted(self) -> bool:
        """Whether every run of positive probability was drawn."""
        return self.log_rest == -math.inf

    def draw(self, n: int = 1) -> None:
        """Run the program n more times.

        Args:
            n: the number of runs; an error if the program has fewer that were not drawn yet.
        """
        check_count("n", n)
        for drawn in range(n):
            if self.exhausted:
                raise ValueError(
                    f"n is {n}, but the program has only {self.k} different runs, and "
                    f"{self.k - drawn} of them were drawn before; expected n <= {drawn}. Draw fewer, "
                    "or use draw_until, which ends when there are no more."
                )
            self._run()

    def draw_until(
        self,
        *,
        coverage: float | None = None,
        standard_error: float | None = None,
        at_least: int = 10,
        at_most: int | None = None,
        extra: int = 0,
    ) -> None:
        r"""Run the program until the first of these limits is reached, or it has no more runs.

        A limit that depends on the draws makes the number of runs random, and then
        :func:`swor.unordered_set` is not exactly unbiased. With ``extra`` runs, which the limits do not
        look at, ``swor.sum_and_sample(runs.sample(), m=extra)`` is, in value and in gradient.

        Args:
            coverage: the probability mass of the runs, above 0 and at most 1.
            standard_error: of the unordered set estimate of the expected cost, the square root of
                :func:`swor.murthy_variance`.
            at_least: the number of runs before a standard error is computed, 2 or more. That of a few
                runs says little: it is 0 if they happen to cost the same.
            at_most: the number of runs in all.
            extra: the number of runs that follow when a limit is reached, or as many as there are.
        """
        _check_limits(coverage, standard_error, at_least, at_most)
        if extra:
            check_count("extra", extra)
        log_enough = -math.inf if coverage in (None, 1.0) else math.log1p(-coverage)
        check_at = at_least
        while self.log_rest > log_enough and (at_most is None or self.k < at_most):
            if standard_error is not None and self.k >= check_at:
                if self.standard_error() <= standard_error:
                    break
                check_at = self.k + 1 + self.k // 16  # the time of a check is quadratic in k
            self._run()
        for _ in range(extra):
            if not self.exhausted:
                self._run()

    def sample(self) -> Sample:
        """Return all runs so far, in the order drawn.

        Returns:
            A sample whose ``value`` (k, choices) has the indices of the choices of every run, followed
            by −1 up to the number of choices of the longest one. ``log_p`` carries the gradient of the
            log-probabilities that the program passed to ``choose``.
        """
        if self._sample is None:
            log_p, log_rest = self._masses()
            kappa = threshold(log_p.detach().cpu(), log_rest.cpu(), self.generator)
            value = pad_sequence(self._paths, batch_first=True, padding_value=PADDING)
            self._sample = to_sample(DistinctValues(value, log_p, log_rest, kappa), log_p)
        return self._sample

    def costs(self) -> Tensor:
        """Return the cost of every run, (k,); it carries gradient where the results of the program do."""
        log_p, _ = self._masses()
        for cost in self._given[len(self._costs) :]:
            self._costs.append(_number(cost, log_p))
        return torch.stack(self._costs)

    def standard_error(self) -> float:
        """Return the estimated standard error of the unordered set estimate of the expected cost; k ≥ 2."""
        log_p, log_rest = self._masses()
        if self.k < 2:
            raise ValueError("there is one run; expected at least two to estimate an error.")
        return math.sqrt(max(float(murthy(log_p.detach(), log_rest, self.costs().detach())), 0.0))

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            raise RuntimeError(
                "draw was called while a run of the same object was under way, by the program itself or "
                "by another thread; expected one run at a time, because each depends on those before it. "
                "Draw after the run, or hold a lock of your own around draw."
            )
        try:
            walk = Walk(self._root, self.generator)
            result = self.program(walk.choose)
            # At once, since a later run may use the same objects for its result.
            cost = result if self.cost is None else self.cost(result)
            walk.end()
        finally:
            self._running.release()
        self.results.append(_kept(result))
        self._given.append(_kept(cost))
        self._paths.append(torch.tensor(walk.path, dtype=torch.long, device="cpu"))
        self._log_p.append(_total(walk.log_p))
        self._sample = None

    def _masses(self) -> tuple[Tensor, Tensor]:
        """Return log-probabilities, (k,), and log_rest, of the same dtype and device."""
        if not self.results:
            raise ValueError("there is no run yet; expected at least one. Call draw first.")
        log_p = torch.stack(self._log_p)
        return log_p, torch.tensor(self.log_rest, dtype=log_p.dtype, device=log_p.device)


def _kept(result: Result) -> Result:
    """Return a result or a cost that stays as it is if the program uses its tensor again."""
    return cast(Result, result.clone()) if isinstance(result, Tensor) else result


def _total(log_p: list[Tensor]) -> Tensor:
    """Return the log-probability of a run; 0 if it made no choice."""
    if not log_p:
        return torch.zeros((), device="cpu")
    return torch.stack([x.to(working_dtype(x.dtype)) for x in log_p]).sum()


def _number(cost: object, like: Tensor) -> Tensor:
    """Return a cost, (), of the dtype and device of the log-probabilities."""
    if isinstance(cost, Tensor) and cost.numel() == 1:
        return cost.to(like).reshape(())
    if isinstance(cost, SupportsFloat) and getattr(cost, "size", 1) == 1:  # of NumPy, too
        return torch.tensor(float(cost), dtype=like.dtype, device=like.device)
    raise TypeError(
        f"the cost of a run is {cost!r}; expected a number, or a tensor of one. Return it from the "
        "program, or give DistinctRuns a function cost from a result to a number."
    )


def _check_limits(
    coverage: float | None, standard_error: float | None, at_least: int, at_most: int | None
) -> None:
    if coverage is None and standard_error is None and at_most is None:
        raise ValueError(
            "draw_until was given no limit; expected coverage, standard_error or at_most."
        )
    if coverage is not None and not 0.0 < coverage <= 1.0:
        raise ValueError(
            f"coverage is {coverage}; expected a probability mass, above 0 and at most 1."
        )
    if standard_error is not None and not standard_error > 0.0:
        raise ValueError(f"standard_error is {standard_error}; expected more than 0.")
    check_count("at_least", at_least)
    if at_least < 2:
        raise ValueError(
            "at_least is 1; expected 2 or more, because one run has no standard error."
        )
    if at_most is not None:
        check_count("at_most", at_most)
