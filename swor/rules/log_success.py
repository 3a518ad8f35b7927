r"""The log of the probability of success, by its series in the probability of failure.

With $P$ the probability that one draw succeeds and $\text{pass@}m = 1 - (1 - P)^m$,

$$\log P = -\sum_{m \ge 1} \frac{(1 - P)^m}{m} = \sum_{m \ge 1} \frac{\text{pass@}m - 1}{m}, \qquad
\nabla \log P = \sum_{m \ge 1} \frac{\nabla \text{pass@}m}{m}.$$

Every term is the best of $m$ draws, of which :mod:`swor.rules.best_of` has unbiased estimates for all $m$
up to the number of samples. So the sum of the first terms, up to an order $T$, is unbiased as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from swor._checks import check_count, may_validate
from swor.math._best_of.weights import BestOfWeights, best_of_weights
from swor.math._logspace import working_dtype
from swor.rules.best_of import check_room, first_order_loss, target_policy
from swor.types import Sample, Scheme, check_numbers, require, score, without_impossible


@dataclass(frozen=True, eq=False)
class LogSuccess:
    r"""The log of the probability of success up to an order, from distinct samples; see :func:`log_success`.

    Attributes:
        sample: drawn without replacement, with $k \ge T$ outcomes.
        order: $T$, the number of terms of the series.
    """

    sample: Sample
    order: int

    def mean(self, success: Tensor) -> Tensor:
        r"""Return the estimate of $\sum_{m \le T} (\text{pass@}m - 1) / m$.

        Args:
            success: 1 for every sample that succeeds and 0 for the others, (*batch, k).

        Returns:
            (*batch,), at most 0
        """
        success = possible_successes(success, self.sample)
        found = self._find(success, None, gradient=False)
        return first_order_loss(success - 1.0, found, self.sample, None)

    def loss(self, success: Tensor, *, log_p: Tensor | None = None) -> Tensor:
        r"""Return the surrogate, to be averaged over the batch and *maximised*.

        Its value is that of :meth:`mean`. Its gradient estimates
        $\sum_{m \le T} \nabla \text{pass@}m / m$.

        Args:
            success: 1 for every sample that succeeds and 0 for the others, (*batch, k).
            log_p: log-probability, (*batch, k), of the policy to differentiate, if it is not the one
                sampled from.

        Returns:
            (*batch,)
        """
        success = possible_successes(success, self.sample)
        target = target_policy(self.sample, log_p)
        found = self._find(success, log_p, gradient=True)
        return first_order_loss(success - 1.0, found, self.sample, target)

    def coefficient(self, success: Tensor) -> Tensor:
        """Return the coefficient of the gradient of each log-probability in :meth:`loss`, (*batch, k)."""
        return self._find(possible_successes(success, self.sample), None, gradient=True).coefficient

    def _find(self, success: Tensor, log_p: Tensor | None, *, gradient: bool) -> BestOfWeights:
        """The sum over all m of the best of m draws, divided by m, in one pass."""
        terms = {m: 1.0 / m for m in range(1, self.order + 1)}
        log_q, log_rest = self.sample.log_p, self.sample.log_rest
        return best_of_weights(log_q, log_rest, success, terms, log_p=log_p, gradient=gradient)


def log_success(sample: Sample, order: int) -> LogSuccess:
    r"""The log of the probability that one draw succeeds, and its gradient, from distinct samples.

    $$\sum_{m=1}^{T} \frac{\text{pass@}m - 1}{m} \to \log P \quad (T \to \infty)$$

    The order $T$ is between the two usual objectives: at $T = 1$ the gradient is that of the probability of
    success, and for large $T$ that of its logarithm, which is maximum likelihood and gives problems that are
    hardly ever solved as much weight as easy ones. Use it to train with a reward of 0 or 1, such as that of a
    verifier, where many problems are still hard. Value and gradient of every order are unbiased, and their
    variance is never above that of the same sum over :func:`swor.best_of_independent`.

    Args:
        sample: drawn without replacement, (*batch, k).
        order: $T$, from 1 to k.

    Returns:
        An object with ``mean(success)`` and ``loss(success, *, log_p=None)``, each (*batch,). Maximise the
        loss.

    >>> import swor, torch
    >>> logits = torch.tensor([2.0, 1.0, 0.0, 0.0], requires_grad=True)
    >>> s = swor.gumbel_top_k(logits.log_softmax(-1), 3)
    >>> success = (s.value == 3).float()  # one answer in four is right
    >>> (-log_success(s, 3).loss(success)).backward()

    References:
        | Maximum Likelihood Reinforcement Learning (Tajwar et al., 2026)
        | https://arxiv.org/abs/2602.02710
    """
    require(sample, "log_success", Scheme.WITHOUT_REPLACEMENT)
    check_count("order", order, most=sample.k)
    check_room(sample, order, "a series of this order", "lower the order")
    return LogSuccess(sample, order)


def log_success_independent(sample: Sample, success: Tensor) -> Tensor:
    r"""MaxRL: the log of the probability of success, and its gradient, from independent samples.

    $$g = \sum_i \frac{r_i - \bar r}{k \bar r} \nabla \log p_i \quad \text{if } \bar r > 0, \text{ and } 0
    \text{ otherwise}$$

    Here $r_i$ is 1 for a success and $\bar r$ is the mean of the $k$ samples. The gradient is unbiased for
    the series of :func:`log_success` of order $k - 1$: the mean score of the successes alone has order
    $k$, and the mean score of all samples, which is subtracted unless all fail, has the mean
    $\nabla \text{pass@}k / k$. Use it as the anchor for :func:`log_success`, or where samples hardly ever
    coincide.

    Args:
        sample: drawn with replacement, (*batch, k), k ≥ 2.
        success: 1 for every sample that succeeds and 0 for the others, (*batch, k).

    Returns:
        (*batch,), to be maximised; its value estimates $\sum_{m < k} (\text{pass@}m - 1) / m$.

    >>> import swor, torch
    >>> s = swor.with_replacement(torch.tensor([0.5, 0.3, 0.2]).log(), 4)
    >>> log_success_independent(s, torch.ones(4))
    tensor(0.)

    References:
        | Maximum Likelihood Reinforcement Learning (Tajwar et al., 2026)
        | https://arxiv.org/abs/2602.02710
    """
    require(sample, "log_success_independent", Scheme.WITH_REPLACEMENT)
    if sample.k < 2:
        raise ValueError("the sample has k = 1; expected k >= 2, for a series of order k - 1.")
    success = possible_successes(success, sample)
    dtype = success.dtype
    success = success.to(working_dtype(dtype))
    failures = sample.k - success.sum(-1)
    mean = success.mean(-1, keepdim=True)
    solved = mean > 0.0
    advantage = torch.where(solved, (success - mean) / torch.where(solved, mean, 1.0), 0.0)
    gradient = (score(sample.log_p) * advantage).mean(-1)
    return (_series(failures, sample.k) + gradient).to(dtype)


def _series(failures: Tensor, k: int) -> Tensor:
    r"""$-\sum_{m < k} \frac1m \binom{c}{m} / \binom{k}{m}$ for $c$ failures among $k$ samples, (*batch,)."""
    total, ratio = torch.zeros_like(failures), torch.ones_like(failures)
    for m in range(1, k):
        ratio = ratio * (failures - m + 1).clamp(min=0.0) / (k - m + 1)
        total = total - ratio / m
    return total


def possible_successes(success: Tensor, sample: Sample) -> Tensor:
    """Return a 0 or a 1 for every sample, with 0 for outcomes of probability 0."""
    check_numbers("success", success, sample.log_p, "the sample")
    success = without_impossible(success, sample.log_p)
    if may_validate(success) and not bool(((success == 0.0) | (success == 1.0)).all()):
        raise ValueError(
            "success contains a number that is neither 0 nor 1; expected 1 for a success and 0 for a "
            "failure. For rewards of other sizes use best_of."
        )
    return success
