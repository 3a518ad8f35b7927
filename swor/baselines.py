r"""Baselines for :meth:`swor.Weights.loss`: what a cost is compared with.

A baseline leaves an estimator unbiased if it does not depend on the sample it is subtracted from:
it comes from other samples, from other elements of the batch, from earlier steps, or from the
distribution alone. None carries gradient.

In data-parallel training every process has a share of the batch. ``group`` makes a baseline of the
costs of all shares: ``torch.distributed.group.WORLD`` is every process, or none but this one where
``torch.distributed`` is not initialised. Every process of the group must then call it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import torch
from torch import Tensor, distributed, nn
from torch.distributions import Distribution

from swor.math.logspace import working_dtype
from swor.samplers.distributions import factorized, sample
from swor.types import Cost


class Baseline(StrEnum):
    """The baselines of score-function estimators that need no state."""

    BUILT_IN = "built-in"  # that of the rule, if it has one
    NONE = "none"
    SAMPLED = "sampled"  # a fresh sample for every term
    SHARED_SAMPLE = "shared sample"  # one fresh sample for all terms
    BATCH_MEAN = "batch mean"  # the mean cost of the other elements of the batch
    GREEDY = "greedy"  # the cost of the likeliest outcome

    def evaluations(self, k: int) -> int:
        """How many evaluations of f the baseline of k samples takes."""
        return {Baseline.SAMPLED: k, Baseline.SHARED_SAMPLE: 1, Baseline.GREEDY: 1}.get(self, 0)


def compute_baseline(
    baseline: Baseline,
    f: Cost,
    dist: Distribution,
    cost: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> Literal["built-in"] | float | Tensor:
    """What :meth:`swor.Weights.loss` is to subtract from the costs (*batch, k) of a sample."""
    if baseline == Baseline.SAMPLED:
        return sampled_baseline(f, dist, cost.shape[-1], generator=generator)
    if baseline == Baseline.SHARED_SAMPLE:
        return sampled_baseline(f, dist, 1, generator=generator)
    if baseline == Baseline.BATCH_MEAN:
        return batch_mean(cost)
    if baseline == Baseline.GREEDY:
        return greedy(f, dist)
    return 0.0 if baseline == Baseline.NONE else "built-in"


@torch.no_grad()
def batch_mean(cost: Tensor, *, group: distributed.ProcessGroup | None = None) -> Tensor:
    r"""$b_i = \frac{1}{(B - 1) k} \sum_{j \ne i} \sum_s f_{j s}$: the mean of the *others* in the batch.

    For batches whose elements are sampled independently and are alike. A batch of one has no
    others, and no baseline: 0.

    Args:
        cost: (*batch, k)
        group: the processes that share the batch; None for this one alone.

    Returns:
        (*batch, 1)

    >>> batch_mean(torch.tensor([[1.0], [2.0], [6.0]]))
    tensor([[4.0000],
            [3.5000],
            [1.5000]])
    """
    own = cost.mean(-1, keepdim=True)
    total, count = _total(own, group)
    others = count - 1.0
    return torch.where(others > 0.0, (total - own) / others, 0.0).to(own.dtype)


def _total(x: Tensor, group: distributed.ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """The sum and the number of the elements on all processes of a group, in one message."""
    x = x.to(working_dtype(x.dtype))
    total = torch.stack([x.sum(), x.new_tensor(float(x.numel()))])
    if group is not None:
        distributed.all_reduce(total, group=group)
    return total[0], total[1]


@torch.no_grad()
def sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""$b_s = f(x'_s)$, $x'_s \sim p$: costs of independent extra samples.

    Args:
        f: the cost.
        dist: the distribution of the batch.
        k: how many: as many as there are terms, or 1 to be shared by all terms.
        generator: the source of randomness.

    Returns:
        (*batch, k)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> sampled_baseline(torch.ones_like, dist, 1).shape
    torch.Size([5, 1])
    """
    return f(sample(dist, k, replacement=True, generator=generator).value)


@torch.no_grad()
def greedy(f: Cost, dist: Distribution) -> Tensor:
    r"""$b = f(\arg\max_x p(x))$: the cost of the likeliest outcome.

    Args:
        f: the cost.
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.

    Returns:
        (*batch, 1)

    >>> dist = torch.distributions.Categorical(probs=torch.tensor([0.2, 0.3, 0.5]))
    >>> greedy(lambda x: x.float(), dist)
    tensor([2.])
    """
    variables = factorized(dist)
    return f(variables.encode(variables.log_probs.argmax(-1).unsqueeze(-2)))


class MovingAverage(nn.Module):
    r"""$b_t = \beta b_{t-1} + (1 - \beta) \bar f_{t-1}$, $b_1 = \bar f_0$: a moving average of earlier costs.

    Call it with the costs of a step: it returns the average *before* that step, 0 at the first, and
    then takes the step in. The average is a buffer and is saved with the model.

    Args:
        decay: β, from 0 (the mean cost of the last step) to below 1.

    >>> average = MovingAverage(decay=0.5)
    >>> tuple(average(torch.tensor([x])).item() for x in (4.0, 2.0, 0.0))
    (0.0, 4.0, 3.0)
    """

    average: Tensor
    steps: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay is {decay}; expected 0 <= decay < 1, such as 0.9.")
        self.decay = decay
        self.register_buffer("average", torch.zeros(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def forward(self, cost: Tensor, *, group: distributed.ProcessGroup | None = None) -> Tensor:
        """From costs (*batch, k) to the average of the steps before, ().

        Args:
            cost: (*batch, k)
            group: the processes whose costs are averaged; None for this one alone.
        """
        before = self.average.to(cost).clone()
        total, count = _total(cost.detach(), group)
        mean = (total / count).to(self.average)
        started = self.steps > 0
        later = self.decay * self.average + (1.0 - self.decay) * mean
        self.average.copy_(torch.where(started, later, mean))
        self.steps.add_(1)
        return before
