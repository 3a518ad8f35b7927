r"""The best of m from independent samples: the estimators that distinct samples are compared with.

All of them average over the subsets of the $k$ samples. Let $\hat J_m$ be the mean of $\max_{i \in I} f_i$
over all sets $I$ of $m$ samples, $\hat J_m^{+i}$ over those with $i$, and $\hat J_m^{-i}$ over those without.
The value is $\hat J_m$, and the gradient is $\sum_i a_i \nabla \log p(x_i)$ with

- "none": $a_i = \frac{m}{k} \hat J_m^{+i}$, the gradient of the value;
- "leave_one_out": $a_i = \frac{m}{k} \hat J_m^{+i} - \frac{m}{k-1} \hat J_m^{-i}$,
  Walder and Karkhanis (2025), equation (29);
- "fewer": $a_i = \frac{m}{k} (\hat J_m^{+i} - \hat J_{m-1}^{-i})$,
  Walder and Karkhanis (2025), equation (33);
- "centred": $a_i = \frac{m}{k} (\hat J_m^{+i} - \hat J_m^{-i})$, which sums to 0 over the samples. This is
  "fewer" minus the mean of the coefficients that "fewer" gives to the others if $i$ is left out: the
  leave-two-out baseline of Takashiro et al. (2026).

Sorted by $f$, the number of subsets in which a sample is the largest is a binomial coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal

import torch
from torch import Tensor

from swor._checks import check_count
from swor.math._best_of.weights import BestOfWeights, ascending
from swor.math._logspace import working_dtype
from swor.rules.best_of import first_order_loss
from swor.types import Sample, Scheme, possible_values, require

SubsetBaseline = Literal["none", "leave_one_out", "fewer", "centred"]
SMALLEST = {"none": 0, "leave_one_out": 1, "fewer": 0, "centred": 1}  # k − m


@dataclass(frozen=True)
class IndependentBestOf:
    r"""The best of m draws from independent samples; see :func:`best_of_independent`.

    Attributes:
        sample: drawn with replacement, with $k \ge m$ outcomes.
        m: the number of draws of which the best one counts.
        largest: whether the largest or the smallest value is the best one.
        baseline: of the gradient; see :func:`best_of_independent`.
    """

    sample: Sample
    m: int
    largest: bool = True
    baseline: SubsetBaseline = "fewer"

    def mean(self, f: Tensor) -> Tensor:
        r"""Return $\hat J_m$, (*batch,), from the values $f$ of all samples, (*batch, k)."""
        f = possible_values("f", f, self.sample.log_p, "the sample")
        return first_order_loss(f, self._find(f.detach()), self.sample, None)

    def loss(self, f: Tensor) -> Tensor:
        r"""Return a loss, (*batch,), of value $\hat J_m$ and gradient $\sum_i a_i \nabla \log p_i$.

        Differentiate it once: its higher derivatives are not estimates of those of $J_m$.

        Args:
            f: the value of every sample, (*batch, k).
        """
        f = possible_values("f", f, self.sample.log_p, "the sample")
        return first_order_loss(f, self._find(f.detach()), self.sample, self.sample.log_p)

    def _find(self, f: Tensor) -> BestOfWeights:
        sign = 1.0 if self.largest else -1.0
        f = sign * f.to(working_dtype(f.dtype))
        order = ascending(f, self.sample.log_p.detach())
        f, back = f.gather(-1, order), order.argsort(-1)
        k, m = f.shape[-1], self.m
        weight = _row(f, [comb(j, m - 1) / comb(k, m) for j in range(k)]).expand_as(f)
        total = m / k * _including(f, m)
        if self.baseline == "leave_one_out":
            total = total - m / (k - 1) * _excluding(f, m)
        elif self.baseline == "centred":
            total = total - m / k * _excluding(f, m)
        elif self.baseline == "fewer" and m > 1:
            total = total - m / k * _excluding(f, m - 1)
        return BestOfWeights(weight.gather(-1, back), sign * total.gather(-1, back))


def best_of_independent(
    sample: Sample, m: int, *, largest: bool = True, baseline: SubsetBaseline = "fewer"
) -> IndependentBestOf:
    r"""The expected best of m draws, and its gradient, from independent samples.

    $$\hat J_m = \frac{1}{\binom{k}{m}} \sum_{|I| = m} \max_{i \in I} f_i, \qquad k \ge m$$

    This is the unbiased estimate of pass@m (Chen et al., 2021), for values of any kind, with the policy
    gradients of Walder and Karkhanis (2025). Use :func:`swor.best_of` if the samples are distinct.

    Args:
        sample: drawn with replacement, (*batch, k).
        m: the number of draws of which the best one counts, from 1 to k.
        largest: True for the largest value, False for the smallest.
        baseline: "fewer", the best of m − 1 others; "leave_one_out" or "centred", the best of m others,
            for k > m; "none". All leave the gradient unbiased.

    Returns:
        An object with ``mean(f)`` and ``loss(f)``, each (*batch,).

    >>> import swor, torch
    >>> s = swor.with_replacement(torch.tensor([0.5, 0.3, 0.2]).log(), 4)
    >>> best_of_independent(s, 2).mean(torch.tensor([0.0, 0.0, 1.0, 0.0]))  # 3 of the 6 pairs
    tensor(0.5000)

    References:
        | Evaluating Large Language Models Trained on Code (Chen et al., 2021)
        | https://arxiv.org/abs/2107.03374

        | Pass@K Policy Optimization: Solving Harder Reinforcement Learning Problems
        | (Walder and Karkhanis, 2025)
        | https://arxiv.org/abs/2505.15201

        | On Advantage Estimates for Max@K Policy Gradients (Takashiro et al., 2026)
        | https://arxiv.org/abs/2606.06080
    """
    require(sample, "best_of_independent", Scheme.WITH_REPLACEMENT)
    check_count("m", m)
    if baseline not in SMALLEST:
        raise ValueError(
            f"baseline is {baseline!r}; expected one of {', '.join(map(repr, SMALLEST))}."
        )
    smallest = m + SMALLEST[baseline]
    if sample.k < smallest:
        raise ValueError(
            f"the sample has k = {sample.k} outcomes; expected at least {smallest} for the best of "
            f"m = {m} with baseline={baseline!r}. Draw a larger sample, or lower m."
        )
    return IndependentBestOf(sample, m, largest, baseline)


def _row(like: Tensor, numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=like.dtype, device=like.device)


def _including(f: Tensor, m: int) -> Tensor:
    """Return the mean of the maximum over the subsets of m that include each sample, ascending."""
    k = f.shape[-1]
    own = [comb(i, m - 1) / comb(k - 1, m - 1) for i in range(k)]
    if m == 1:
        return f
    above = [comb(j - 1, m - 2) / comb(k - 1, m - 1) if j else 0.0 for j in range(k)]
    return f * _row(f, own) + _after(f * _row(f, above))


def _excluding(f: Tensor, m: int) -> Tensor:
    """Return the mean of the maximum over the subsets of m ≥ 1 that exclude each sample, ascending."""
    k = f.shape[-1]
    below = [comb(j, m - 1) / comb(k - 1, m) for j in range(k)]
    above = [comb(j - 1, m - 1) / comb(k - 1, m) if j else 0.0 for j in range(k)]
    before = _after((f * _row(f, below)).flip(-1)).flip(-1)
    return before + _after(f * _row(f, above))


def _after(x: Tensor) -> Tensor:
    """Return the sum of all later entries, (*batch, k)."""
    sums = x.flip(-1).cumsum(-1).flip(-1)
    return torch.cat([sums[..., 1:], torch.zeros_like(x[..., :1])], dim=-1)
