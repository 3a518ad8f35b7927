r"""The contract: what a sampler returns, and what an estimator makes of it.

A sampler draws a :class:`Sample`; a rule turns it into :class:`Weights`, constants that do not
depend on the cost $f$; the weights turn the cost of every sample into an estimate:

$$e = \sum_s w_s f_s, \qquad b_s = \sum_{s'} M_{ss'} f_{s'}, \qquad
L = \sum_s w_s \bigl(f_s + (\log p_s - \bot(\log p_s)) \, \bot(f_s - b_s)\bigr),$$

where $\bot$ stops the gradient. The number $L$ is the estimate of $E[f]$ and its gradient is the
estimate of $\nabla E[f]$, including the pathwise term where $f$ itself carries gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor

from swor.checks import check_same, check_shape, may_inspect

Cost = Callable[[Tensor], Tensor]  # from values (*batch, k, *event) to costs (*batch, k)


class Scheme(StrEnum):
    """How a sample was drawn. A rule is valid for some schemes only, and refuses the others."""

    WITHOUT_REPLACEMENT = "without_replacement"
    WITH_REPLACEMENT = "with_replacement"
    TOP_K_AND_SAMPLE = "top_k_and_sample"
    BEAM_SEARCH = "beam_search"
    STRATIFIED = "stratified"
    SYSTEMATIC = "systematic"

    @property
    def samplers(self) -> str:
        """The functions that draw such a sample, for error messages."""
        return {
            Scheme.WITHOUT_REPLACEMENT: "gumbel_top_k, stochastic_beam_search or sample(dist, k)",
            Scheme.WITH_REPLACEMENT: "with_replacement or sample(dist, k, replacement=True)",
            Scheme.STRATIFIED: "stratified_sample",
            Scheme.SYSTEMATIC: "systematic_sample",
        }.get(self, str(self))


@dataclass(frozen=True, eq=False)  # tensors have no single truth value to compare by
class Sample:
    """k outcomes of a discrete random variable, in the order sampled.

    Attributes:
        value: the outcomes, (*batch, k, *event).
        log_p: log-probability under the model sampled from, (*batch, k); carries the gradient.
        log_rest: log of the probability mass outside the sample, (*batch,); −inf if nothing is
            left; None where drawn with replacement.
        kappa: the (k+1)-th largest perturbed log-probability, (*batch,); −inf if nothing is left;
            None where there is none.
        scheme: how the sample was drawn.
        log_q: log of the expected number of copies of each outcome, (*batch, k), where part of the
            sample was chosen and not drawn (``top_k_and_sample``); None elsewhere.
    """

    value: Tensor
    log_p: Tensor
    log_rest: Tensor | None = None
    kappa: Tensor | None = None
    scheme: Scheme | str = Scheme.WITHOUT_REPLACEMENT
    log_q: Tensor | None = None

    @property
    def k(self) -> int:
        """The number of samples."""
        return self.log_p.shape[-1]

    def require(self, rule: str, *schemes: Scheme) -> None:
        """Refuse a scheme that a rule is not valid for."""
        if self.scheme not in schemes:
            cures = "; or ".join(scheme.samplers for scheme in schemes)
            raise ValueError(
                f"{rule} was given a sample drawn by the scheme '{self.scheme}'; expected "
                f"{' or '.join(repr(str(s)) for s in schemes)}. Draw it with {cures}."
            )


@dataclass(frozen=True, eq=False)
class Weights:
    r"""The constants of an estimator: a weight per sample and a row of baseline weights per sample.

    Attributes:
        weight: $w_s$, (*batch, k).
        control: $M_{ss'}$, row s, column s', (*batch, k, k); None if there is no built-in baseline.
        log_p: log-probability of each sample, with gradient, (*batch, k).

    >>> import swor
    >>> log_probs = torch.tensor([0.5, 0.3, 0.2]).log().requires_grad_()
    >>> s = swor.gumbel_top_k(log_probs, 2, generator=torch.Generator().manual_seed(0))
    >>> loss = swor.unordered_set(s).loss(cost=s.value.float() ** 2)
    >>> loss.backward()
    """

    weight: Tensor
    control: Tensor | None
    log_p: Tensor

    def mean(self, cost: Tensor) -> Tensor:
        r"""$\sum_s w_s f_s$, (*batch,): the estimate of the expected cost."""
        self._check(cost)
        return (self.weight * cost).sum(-1)

    def baseline(self, cost: Tensor) -> Tensor:
        r"""$b_s = \sum_{s'} M_{ss'} f_{s'}$, (*batch, k): what each cost is compared with."""
        self._check(cost)
        return self._baseline(cost)

    def _baseline(self, cost: Tensor) -> Tensor:
        if self.control is None:
            return torch.zeros_like(cost)
        return (self.control * cost.unsqueeze(-2)).sum(-1)

    def loss(
        self,
        cost: Tensor,
        *,
        baseline: Literal["built-in"] | float | Tensor = "built-in",
        log_p: Tensor | None = None,
    ) -> Tensor:
        r"""$\sum_s w_s (f_s + (\log p_s - \bot(\log p_s)) \, \bot(f_s - b_s))$: the surrogate.

        Its value estimates $E[f]$ and its gradient estimates $\nabla E[f]$
        (``eq:full_unord_set_pg_estimator_autograd``). Average it over the batch and call
        ``backward``.

        Args:
            cost: $f$ of every sample, (*batch, k); where it carries gradient, the pathwise term is
                included.
            baseline: the built-in one (zero if the rule has none), or a number or tensor that
                broadcasts to ``cost`` and does not depend on the sample it is subtracted from; 0.0
                means none.
            log_p: log-probability, (*batch, k), of the policy to differentiate, if it is not the
                one sampled from; weights and baseline are corrected by $p / q$.

        Returns:
            (*batch,)
        """
        self._check(cost)
        weights = self if log_p is None else self.off_policy(log_p)
        advantage = cost.detach() - weights._subtract(cost.detach(), baseline)
        return (weights.weight * (cost + score(weights.log_p) * advantage)).sum(-1)

    def off_policy(self, log_p: Tensor) -> Weights:
        r"""The weights for another policy $p$ than the one sampled from, $q$.

        $w_s \leftarrow w_s p_s / q_s$ and $M_{ss'} \leftarrow M_{ss'} p_{s'} / q_{s'}$.

        Args:
            log_p: log-probability of the samples under $p$, with gradient, (*batch, k).
        """
        self._check(log_p, "log_p")
        ratio = torch.exp((log_p - self.log_p).detach())
        ratio = ratio.masked_fill(self.log_p == -torch.inf, 0.0)
        control = None if self.control is None else self.control * ratio.unsqueeze(-2)
        return Weights(self.weight * ratio, control, log_p)

    def _subtract(self, cost: Tensor, baseline: str | float | Tensor) -> Tensor:
        if isinstance(baseline, Tensor):
            check_same("baseline", baseline, "cost", cost)
            if not _broadcasts(baseline.shape, cost.shape):
                raise ValueError(
                    f"baseline has shape {tuple(baseline.shape)}; expected one that broadcasts to "
                    f"the cost, {tuple(cost.shape)}. Add an axis, for instance with [..., None]."
                )
            return baseline.detach()
        if isinstance(baseline, str):
            if baseline != "built-in":
                raise ValueError(
                    f"baseline is {baseline!r}; expected 'built-in', a number or a tensor that "
                    "broadcasts to the cost (0.0 means none)."
                )
            return self._baseline(cost)
        return torch.full_like(cost, baseline)

    def _check(self, given: Tensor, name: str = "cost") -> None:
        check_shape(name, given, tuple(self.weight.shape), "one number for every sample")
        check_same(name, given, "the weights", self.weight)
        if may_inspect(given) and bool(given.isnan().any()):
            raise ValueError(
                f"{name} contains NaN; expected a number for every sample. Look for the step that "
                "made it: an estimate from it would be NaN as well."
            )


def score(log_p: Tensor) -> Tensor:
    r"""$\log p - \bot(\log p)$: zero, with the gradient of $\log p$; none where p is 0."""
    log_p = log_p.masked_fill(log_p == -torch.inf, 0.0)
    return log_p - log_p.detach()


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    trailing = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (1, b) for a, b in trailing)
