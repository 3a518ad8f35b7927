"""Distinct runs of any program that makes random choices, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from swor.checks import check_count
from swor.estimators.unordered import murthy_variance
from swor.math.logspace import working_dtype
from swor.programs.limits import Limits
from swor.samplers.stream import threshold
from swor.samplers.tree import Node
from swor.samplers.walk import Walk
from swor.types import Sample, Scheme

Choose = Callable[[Tensor], int]  # from log-probabilities (n,) to the index of an option
Result = TypeVar("Result")

PADDING = -1  # follows the last choice of a run


class DistinctRuns(Generic[Result]):
    r"""Runs of a program, no two of which make the same choices: a sample without replacement.

    The program is called with a function ``choose``, and calls ``choose(log_probs)`` for every random
    choice, as often as it likes. The probability of a run is the product of those of its choices. Every
    run has the law of the program among the runs that were not drawn yet, so that at any time the runs
    are a sample without replacement, and their number need not be known in advance (incremental
    sampling; Shi, Bieber and Sutton 2020, https://arxiv.org/abs/2002.09067).

    After the same choices the program must offer the same options with the same probabilities. Make a
    new object when these change, for instance after a step of an optimiser. For a model that extends
    many sequences at a time, :class:`swor.DistinctSequences` is faster, and for a table of
    log-probabilities :func:`swor.gumbel_top_k`.

    Args:
        program: from ``choose`` to a result.
        cost: from a result to a number; None if the result is that number.
        generator: the source of randomness, on the CPU.

    Attributes:
        results: what the program returned, in the order of the runs.

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
        self._costs: list[Tensor] = []  # of the first results, until more are asked for
        self._sample: Sample | None = None

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

        A limit that depends on what was drawn makes the number of runs random, and then
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
        limits = Limits(coverage, standard_error, at_least, at_most)
        if extra:
            check_count("extra", extra)
        check_at = at_least
        while limits.allow(self.k, self.log_rest):
            if standard_error is not None and self.k >= check_at:
                if self.standard_error() <= standard_error:
                    break
                check_at = limits.next_check(self.k)
            self._run()
        for _ in range(extra):
            if not self.exhausted:
                self._run()

    def sample(self) -> Sample:
        """All runs so far, in the order drawn.

        Returns:
            A sample whose ``value`` (k, choices) has the indices of the choices of every run, followed
            by −1 up to the number of choices of the longest one. ``log_p`` carries the gradient of the
            log-probabilities that the program passed to ``choose``.
        """
        if self._sample is None:
            log_p, log_rest = self._masses()
            kappa = threshold(log_p.detach().cpu(), log_rest.cpu(), self.generator)
            value = pad_sequence(self._paths, batch_first=True, padding_value=PADDING)
            self._sample = Sample(
                value=value.to(log_p.device),
                log_p=log_p,
                log_rest=log_rest,
                kappa=kappa.to(log_p.device),
                scheme=Scheme.WITHOUT_REPLACEMENT,
            )
        return self._sample

    def costs(self) -> Tensor:
        """The cost of every run, (k,); it carries gradient where the results of the program do."""
        log_p, _ = self._masses()
        for result in self.results[len(self._costs) :]:
            self._costs.append(_number(result if self.cost is None else self.cost(result), log_p))
        return torch.stack(self._costs)

    def standard_error(self) -> float:
        """The estimated standard error of the unordered set estimate of the expected cost; k ≥ 2."""
        log_p, log_rest = self._masses()
        sample = Sample(torch.arange(self.k), log_p.detach(), log_rest)
        return math.sqrt(max(float(murthy_variance(sample, self.costs().detach())), 0.0))

    def _run(self) -> None:
        walk = Walk(self._root, self.generator)
        result = self.program(walk.choose)
        walk.end()
        self.results.append(result)
        self._paths.append(torch.tensor(walk.path, dtype=torch.long))
        self._log_p.append(_total(walk.log_p))
        self._sample = None

    def _masses(self) -> tuple[Tensor, Tensor]:
        """Log-probabilities, (k,), and log_rest, of the same dtype and device."""
        if not self.results:
            raise ValueError("there is no run yet; expected at least one. Call draw first.")
        log_p = torch.stack(self._log_p)
        return log_p, torch.tensor(self.log_rest, dtype=log_p.dtype, device=log_p.device)


def _total(log_p: list[Tensor]) -> Tensor:
    """Log-probability of a run; 0 if it made no choice."""
    if not log_p:
        return torch.zeros(())
    return torch.stack([x.to(working_dtype(x.dtype)) for x in log_p]).sum()


def _number(cost: object, like: Tensor) -> Tensor:
    """A cost, (), of the dtype and device of the log-probabilities."""
    if isinstance(cost, Tensor) and cost.numel() == 1:
        return cost.to(like).reshape(())
    if isinstance(cost, int | float):
        return torch.tensor(float(cost), dtype=like.dtype, device=like.device)
    raise TypeError(
        f"the cost of a run is {cost!r}; expected a number, or a tensor of one. Return it from the "
        "program, or give DistinctRuns a function cost from a result to a number."
    )
