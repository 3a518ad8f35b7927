r"""The contract between samplers and estimators: samples, weights and the surrogate loss.

A sampler returns a :class:`Sample`. A rule turns it into :class:`Weights`, constants that do not
depend on the cost $f$. The weights turn the costs of the samples into an estimate:

$$e = \sum_s w_s f_s, \qquad b_s = \sum_{s'} M_{ss'} f_{s'}, \qquad
L = \sum_s w_s \Bigl(f_s + \Bigl(\frac{p_s}{\bot(p_s)} - 1\Bigr) \bigl(f_s - \bot(b_s)\bigr)\Bigr),$$

where $\bot$ stops the gradient. The value of $L$ is the estimate of $E[f]$, and its gradient is the
estimate of $\nabla E[f]$. If $f$ itself carries gradient, this includes the pathwise term. The factor
$p_s / \bot(p_s) - 1$ is zero and has the gradient of $\log p_s$. Its higher derivatives are right as
well, so those of $L$ are unbiased for those of $E[f]$, as with DiCE (Foerster et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, SupportsFloat

import torch
from torch import Tensor

from swor._checks import (
    check_finite,
    check_log_probs,
    check_not_nan,
    check_policy,
    check_probabilities,
    check_same,
    check_shape,
    check_tensor,
    kind,
    known_finite,
    may_inspect,
)
from swor.math._off_policy import LogRatios, off_policy

Cost = Callable[[Tensor], Tensor]  # from values (*batch, k, *event) to costs (*batch, k)
# What the completions of a prompt are trained for.
Objective = Literal["mean", "best_of", "log_success"]


class Scheme(StrEnum):
    """How a sample was drawn. Each rule is valid for some schemes and rejects the others."""

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


def _no_scheme() -> Scheme:
    raise TypeError(
        f"Sample was given no scheme; expected one of {', '.join(repr(str(s)) for s in Scheme)}. Say how "
        "the sample was drawn, for instance with scheme='with_replacement' for independent samples."
    )


@dataclass(frozen=True, eq=False)  # tensors have no single truth value to compare by
class Sample:
    """A sample of k outcomes of a discrete random variable, in the order in which they were drawn.

    Attributes:
        value: the outcomes, (*batch, k, *event).
        log_p: the log-probability of each outcome under the model, (*batch, k). It carries the
            gradient.
        log_rest: the log of the probability mass outside the sample, (*batch,). It is −inf if no mass
            is left, and None for samples drawn with replacement.
        kappa: the (k+1)-th largest perturbed log-probability, (*batch,). It is −inf if no mass is
            left, and None for schemes without perturbed log-probabilities.
        scheme: how the sample was drawn; give it as a keyword. There is no default, because a rule that
            is unbiased for one scheme is biased for another.
        log_q: the log of the expected number of copies of each outcome, (*batch, k), for schemes that
            select some outcomes deterministically (``top_k_and_sample``), in float32 for half precision;
            None for all others.
    """

    value: Tensor
    log_p: Tensor
    log_rest: Tensor | None = None
    kappa: Tensor | None = None
    scheme: Scheme | str = field(kw_only=True, default_factory=_no_scheme)
    log_q: Tensor | None = None

    @property
    def k(self) -> int:
        """The number of samples."""
        return self.log_p.shape[-1]

    def require(self, rule: str, *schemes: Scheme) -> None:
        """Raise an error unless the sample was drawn by one of the given schemes."""
        if self.scheme not in schemes:
            cures = "; or ".join(scheme.samplers for scheme in schemes)
            raise ValueError(
                f"{rule} was given a sample drawn by the scheme '{self.scheme}'; expected "
                f"{' or '.join(repr(str(s)) for s in schemes)}. Draw it with {cures}."
            )


@dataclass(frozen=True, eq=False)
class Weights:
    r"""The constants of an estimator: for each sample, a weight and a row of baseline weights.

    An estimate is computed in the precision of the weights, which is float32 for samples in half precision,
    and converted at the end. The cost of an outcome of probability 0 is not used, whatever it is.

    Attributes:
        weight: the weights $w_s$, (*batch, k).
        baseline_weights: the baseline weights $M_{ss'}$, row s, column s', (*batch, k, k); None if the
            rule has no built-in baseline.
        log_p: the log-probability of each sample, with gradient, (*batch, k).
        log_ratios: returns $\log (w_s / q_s)$, (*batch, k), and $\log (M_{ss'} / q_{s'})$, (*batch, k, k)
            or None, of the distribution sampled from, $q$; None if the rule has no other form of its weights.
            An off-policy loss needs it where a weight underflows.

    >>> import swor
    >>> log_probs = torch.tensor([0.5, 0.3, 0.2]).log().requires_grad_()
    >>> s = swor.gumbel_top_k(log_probs, 2, generator=torch.Generator().manual_seed(0))
    >>> loss = swor.unordered_set(s).loss(cost=s.value.float() ** 2)
    >>> loss.backward()
    """

    weight: Tensor
    baseline_weights: Tensor | None
    log_p: Tensor
    log_ratios: LogRatios | None = field(default=None, repr=False)

    def mean(self, cost: Tensor) -> Tensor:
        r"""Return the estimate of the expected cost, $\sum_s w_s f_s$, (*batch,)."""
        used = self._used(cost)
        return (self.weight.detach() * used).sum(-1).to(self._dtype(cost))

    def baseline(self, cost: Tensor) -> Tensor:
        r"""Return the built-in baseline of every sample, $b_s = \sum_{s'} M_{ss'} f_{s'}$, (*batch, k)."""
        return self._baseline(self._used(cost)).to(self._dtype(cost))

    def _baseline(self, cost: Tensor) -> Tensor:
        if self.baseline_weights is None:
            return torch.zeros_like(cost)
        return (self.baseline_weights * cost.unsqueeze(-2)).sum(-1)

    def loss(
        self,
        cost: Tensor,
        *,
        baseline: Literal["built-in"] | float | Tensor = "built-in",
        log_p: Tensor | None = None,
    ) -> Tensor:
        r"""Return the surrogate loss, to be averaged over the batch and differentiated.

        $$L = \sum_s w_s \Bigl(f_s + \Bigl(\frac{p_s}{\bot(p_s)} - 1\Bigr) \bigl(f_s - \bot(b_s)\bigr)\Bigr)$$

        Its value estimates $E[f]$ and its gradient estimates $\nabla E[f]$. The loss can be
        differentiated any number of times: for an unbiased rule, its Hessian is an unbiased estimate of
        $\nabla^2 E[f]$.

        Args:
            cost: the cost $f_s$ of every sample, (*batch, k). If it carries gradient, the pathwise term
                is included.
            baseline: ``"built-in"`` for the baseline of the rule (zero if it has none), or a number or
                a tensor that broadcasts to ``cost``. It must not depend on the sample from whose cost
                it is subtracted. Use 0.0 for no baseline.
            log_p: the log-probability of every sample, (*batch, k), under the policy to differentiate,
                if this is not the distribution sampled from. The weights and the baseline are then
                corrected by $p / q$.

        Returns:
            (*batch,)

        References:
            | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
            | (Kool et al., 2020), equations (17) and (20)
            | https://arxiv.org/abs/2002.06043

            | DiCE: The Infinitely Differentiable Monte-Carlo Estimator (Foerster et al., 2018)
            | https://arxiv.org/abs/1802.05098
        """
        check_numbers("cost", cost, self.weight, "the weights")
        weights = self if log_p is None else self.off_policy(log_p)
        if may_inspect(cost, weights.log_p):
            loss = weights._surrogate(cost, baseline)
            if known_finite(loss):  # then all costs are finite, because 0 · inf is not
                return loss.to(self._dtype(cost))
        used = self._used(cost)
        check_not_nan("log_p of the sample", weights.log_p)
        return weights._surrogate(used, baseline).to(self._dtype(cost))

    def _surrogate(self, cost: Tensor, baseline: object) -> Tensor:
        """Return the loss in the precision of the weights, (*batch,)."""
        used = cost.to(_wider(cost.dtype, self.weight.dtype))
        # no_grad does not stop forward-mode derivatives, so the constants are detached here.
        weight, subtracted = self.weight.detach(), self._subtract(used, baseline).detach()
        change = torch.expm1(score(self.log_p.to(used.dtype)))  # exactly 0
        pathwise = weight * used
        coefficient = torch.addcmul(pathwise, weight, subtracted, value=-1)
        return torch.addcmul(pathwise, coefficient, change).sum(-1)

    def off_policy(self, log_p: Tensor) -> Weights:
        r"""Return the weights for a policy $p$ that differs from the distribution sampled from, $q$.

        $w_s \leftarrow w_s p_s / q_s$ and $M_{ss'} \leftarrow M_{ss'} p_{s'} / q_{s'}$.

        Args:
            log_p: the log-probability of every sample under $p$, with gradient, (*batch, k).
        """
        check_numbers("log_p", log_p, self.weight, "the weights")
        check_policy(log_p)
        weight, rows = off_policy(
            self.weight, self.baseline_weights, self.log_p.detach(), log_p.detach(), self.log_ratios
        )
        return Weights(weight, rows, log_p)

    def _subtract(self, cost: Tensor, baseline: object) -> Tensor:
        if isinstance(baseline, Tensor):
            check_tensor("baseline", baseline, cost.dtype)
            check_same("baseline", baseline, "cost", cost)
            if not _broadcasts(baseline.shape, cost.shape):
                raise ValueError(
                    f"baseline has shape {tuple(baseline.shape)}; expected one that broadcasts to "
                    f"the cost, {tuple(cost.shape)}. Add an axis, for instance with baseline[..., None]."
                )
            check_finite("baseline", baseline)
            return baseline.detach().to(cost.dtype)
        if isinstance(baseline, str):
            if baseline != "built-in":
                raise ValueError(
                    f"baseline is {baseline!r}; expected 'built-in', a number or a tensor that "
                    "broadcasts to the cost (0.0 means none)."
                )
            return self._baseline(cost)
        if isinstance(baseline, (int, float)) and not isinstance(baseline, bool):
            number: float = baseline
        else:
            number = _number(baseline, cost.dtype)
        if not math.isfinite(number):
            raise ValueError(f"baseline is {number}; expected a finite number. Use 0.0 for none.")
        return torch.full_like(cost, number)

    def _used(self, cost: Tensor) -> Tensor:
        """Return costs in the precision of the weights, with 0 for outcomes of probability 0."""
        check_numbers("cost", cost, self.weight, "the weights")
        cost = without_impossible(cost, self.log_p)
        check_finite("cost", cost)
        return cost.to(_wider(cost.dtype, self.weight.dtype))

    def _dtype(self, cost: Tensor) -> torch.dtype:
        return _wider(cost.dtype, self.log_p.dtype)


Rule = Callable[[Sample], Weights]


def require(sample: object, rule: str, *schemes: Scheme) -> None:
    """Raise an error unless a rule was given a sample, drawn by one of the given schemes."""
    if not isinstance(sample, Sample):
        raise TypeError(
            f"{rule} was given {kind(sample)}; expected a Sample. Draw it with "
            f"{'; or '.join(scheme.samplers for scheme in schemes)}."
        )
    check_log_probs("sample.log_p", sample.log_p)
    if sample.log_rest is None:  # otherwise both are normalised together
        check_probabilities("sample.log_p", sample.log_p)
    sample.require(rule, *schemes)


def without_impossible(cost: Tensor, log_p: Tensor) -> Tensor:
    """Return costs with 0 for outcomes of probability 0, which 0 · inf or 0 · NaN would not be."""
    return cost.masked_fill(log_p == -torch.inf, 0.0)


def check_numbers(name: str, given: Tensor, like: Tensor, like_name: str) -> None:
    """Check that there is one number for every sample, of the same precision and on the same device."""
    check_tensor(name, given, like.dtype)
    check_shape(name, given, tuple(like.shape), "one number for every sample")
    check_same(name, given, like_name, like)


def possible_values(name: str, given: Tensor, log_p: Tensor, like_name: str) -> Tensor:
    """Return a finite number for every sample, with 0 for outcomes of probability 0."""
    check_numbers(name, given, log_p, like_name)
    given = without_impossible(given, log_p)
    check_finite(name, given)
    return given


def _wider(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """Return the dtype of a sum; equal ones, the common case, need not ask."""
    return one if one == other else torch.promote_types(one, other)


def score(log_p: Tensor) -> Tensor:
    r"""Return $\log p - \bot(\log p)$: zero, with the gradient of $\log p$, or no gradient if p is 0."""
    log_p = log_p.clamp(min=torch.finfo(log_p.dtype).min)  # which has no gradient at −inf
    return log_p - log_p.detach()


def _number(baseline: object, dtype: torch.dtype) -> float:
    """Return a baseline that is a number of another kind, such as one of NumPy, as a float."""
    if isinstance(baseline, SupportsFloat) and getattr(baseline, "shape", None) == ():
        return float(baseline)
    raise TypeError(
        f"baseline is {kind(baseline)}; expected 'built-in', a number (0.0 means none) or a tensor "
        f"that broadcasts to the cost, such as torch.as_tensor(baseline, dtype={dtype})."
    )


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    trailing = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (1, b) for a, b in trailing)
