"""Baselines for :meth:`swor.Weights.loss`: the numbers that are subtracted from the costs.

A baseline leaves an estimator unbiased if it does not depend on the sample from whose cost it is
subtracted. It may come from other samples, from other elements of the batch, from earlier steps, or from
the distribution alone. No baseline carries gradient.

In data-parallel training, every process has a share of the batch. With ``group``, a baseline uses the
costs of all processes of a group, and every process of the group must call it.
``torch.distributed.group.WORLD`` is the group of all processes; it is None if ``torch.distributed`` is not
initialised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, distributed, nn
from torch.distributions import Distribution

from swor._checks import TOLERANCE, check_finite, check_tensor
from swor.math._logspace import working_dtype
from swor.samplers.distributions import factorized, sample
from swor.types import Cost

Subtracted = Literal["built-in"] | float | Tensor
"""A baseline as :meth:`swor.Weights.loss` accepts it."""


@dataclass(frozen=True, eq=False)
class BaselineInputs:
    """The costs that a baseline is computed from; those outside the sample are evaluated on demand.

    Attributes:
        cost: the costs of the sample, (*batch, k).
        sampled: from n to the costs of n additional, independent samples, (*batch, n).
        greedy: returns the cost of the most probable outcome, (*batch, 1).
        group: the processes that share the batch; None for this process alone.
    """

    cost: Tensor
    sampled: Callable[[int], Tensor]
    greedy: Callable[[], Tensor]
    group: distributed.ProcessGroup | None = None


class Baseline(ABC):
    """A baseline that needs no state.

    A rule, the scheme that draws its samples and a baseline make an estimator, such as
    ``swor.reinforce_sampled_baseline``. A new baseline is a subclass that defines ``_compute``, and
    ``samples`` or ``evaluations`` if it evaluates f at other outcomes than those of the sample.

    Attributes:
        mixes_batch: whether the baseline of an element of the batch depends on the other elements.

    >>> [b.evaluations(4) for b in (BatchMean(), Greedy(), Sampled(), Sampled(shared=True))]
    [0, 1, 4, 1]
    """

    mixes_batch: ClassVar[bool] = False

    @torch.no_grad()
    def __call__(self, inputs: BaselineInputs) -> Subtracted:
        """Return the baseline, as :meth:`swor.Weights.loss` accepts it."""
        return self._compute(inputs)

    @abstractmethod
    def _compute(self, inputs: BaselineInputs) -> Subtracted:
        """Return the baseline, which is linear in the costs of additional samples."""

    def samples(self, k: int) -> int:
        """Return the number of additional samples: 0, 1 that all k terms share, or k, one for each."""
        return 0

    def evaluations(self, k: int) -> int:
        """Return the number of evaluations of f that the baseline of k samples needs."""
        return self.samples(k)

    def mean(self, k: int, mean_cost: Tensor, greedy: Callable[[], Tensor]) -> Subtracted:
        """Return the mean over the additional samples, if there is no batch.

        Args:
            k: the size of the sample.
            mean_cost: the expected cost, ().
            greedy: returns the cost of the most probable outcome, (1,).
        """
        return self(BaselineInputs(mean_cost.expand(k), mean_cost.expand, greedy))


@dataclass(frozen=True)
class BuiltIn(Baseline):
    """The baseline of the rule, if it has one."""

    def _compute(self, inputs: BaselineInputs) -> Subtracted:
        return "built-in"


@dataclass(frozen=True)
class NoBaseline(Baseline):
    """No baseline, even if the rule has one."""

    def _compute(self, inputs: BaselineInputs) -> Subtracted:
        return 0.0


@dataclass(frozen=True)
class Sampled(Baseline):
    """The costs of additional, independent samples; see :func:`sampled_baseline`.

    Args:
        shared: whether all terms share one additional sample.
    """

    shared: bool = False

    def _compute(self, inputs: BaselineInputs) -> Subtracted:
        return inputs.sampled(self.samples(inputs.cost.shape[-1]))

    def samples(self, k: int) -> int:
        """Return k, or 1 for a shared sample."""
        return 1 if self.shared else k


@dataclass(frozen=True)
class BatchMean(Baseline):
    """The mean cost of the other elements of the batch; see :func:`batch_mean`."""

    mixes_batch: ClassVar[bool] = True

    def _compute(self, inputs: BaselineInputs) -> Subtracted:
        return batch_mean(inputs.cost, group=inputs.group)


@dataclass(frozen=True)
class Greedy(Baseline):
    """The cost of the most probable outcome; see :func:`greedy`."""

    def _compute(self, inputs: BaselineInputs) -> Subtracted:
        return inputs.greedy()

    def evaluations(self, k: int) -> int:
        """Return 1, for the most probable outcome."""
        return 1


BUILT_IN = BuiltIn()


@torch.no_grad()
def batch_mean(cost: Tensor, *, group: distributed.ProcessGroup | None = None) -> Tensor:
    r"""The mean cost of the other elements of the batch.

    $$b_i = \frac{1}{(B - 1) k} \sum_{j \ne i} \sum_s f_{j s}$$

    Use it for batches whose elements are sampled independently and have similar costs. For a batch of one
    element the baseline is 0.

    Args:
        cost: (*batch, k)
        group: the processes that share the batch; None for this process alone.

    Returns:
        (*batch, 1)

    >>> batch_mean(torch.tensor([[1.0], [2.0], [6.0]]))
    tensor([[4.0000],
            [3.5000],
            [1.5000]])

    References:
        | Simple statistical gradient-following algorithms for connectionist reinforcement
        | learning (Williams, 1992)
        | https://doi.org/10.1007/BF00992696
    """
    check_costs(cost)
    own = cost.mean(-1, keepdim=True)
    total, count = _total(own, group)
    others = count - 1.0
    return torch.where(others > 0.0, (total - own) / others, 0.0).to(own.dtype)


def check_costs(cost: Tensor) -> None:
    """Check that costs are a dense tensor of finite floating-point numbers with a sample axis."""
    check_tensor("cost", cost)
    if cost.dtype not in TOLERANCE or cost.dim() < 1:
        raise TypeError(
            f"cost has dtype {cost.dtype} and shape {tuple(cost.shape)}; expected floating point, "
            "(*batch, k). Convert it, for instance with cost.float()."
        )
    check_finite("cost", cost)


def _total(x: Tensor, group: distributed.ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """Return the sum and the number of the elements on all processes of a group, by one message."""
    x = x.to(working_dtype(x.dtype))
    total = torch.stack([x.sum(), x.new_tensor(float(x.numel()))])
    if group is not None:
        distributed.all_reduce(total, group=group)
    return total[0], total[1]


@torch.no_grad()
def sampled_baseline(
    f: Cost, dist: Distribution, k: int, *, generator: torch.Generator | None = None
) -> Tensor:
    r"""The costs of additional, independent samples.

    $$b_s = f(x'_s), \qquad x'_s \sim p$$

    Use it for a rule without a built-in baseline, if f is cheap to evaluate.

    Args:
        f: the cost, from values (*batch, k, *event) to (*batch, k).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.
        k: the number of samples: as many as there are terms, or 1 to share one sample among all terms.
        generator: the source of randomness.

    Returns:
        (*batch, k)

    >>> dist = torch.distributions.Bernoulli(logits=torch.zeros(5))
    >>> sampled_baseline(torch.ones_like, dist, 1).shape
    torch.Size([5, 1])

    References:
        | Rao-Blackwellized Stochastic Gradients for Discrete Distributions (Liu et al., 2019)
        | https://arxiv.org/abs/1810.04777
    """
    return f(sample(dist, k, replacement=True, generator=generator).value)


@torch.no_grad()
def greedy(f: Cost, dist: Distribution) -> Tensor:
    r"""The cost of the most probable outcome.

    $$b = f(\arg\max_x p(x))$$

    Use it where outcomes are decoded greedily in the end, as in self-critical training.

    Args:
        f: the cost, from values (*batch, 1, *event) to (*batch, 1).
        dist: Categorical, OneHotCategorical, Bernoulli, or Independent of these.

    Returns:
        (*batch, 1)

    >>> dist = torch.distributions.Categorical(probs=torch.tensor([0.2, 0.3, 0.5]))
    >>> greedy(lambda x: x.float(), dist)
    tensor([2.])

    References:
        | Self-Critical Sequence Training for Image Captioning (Rennie et al., 2017)
        | https://arxiv.org/abs/1612.00563
    """
    variables = factorized(dist)
    return f(variables.encode(variables.log_probs.argmax(-1).unsqueeze(-2)))


class MovingAverage(nn.Module):
    r"""A moving average of the costs of earlier steps.

    $$b_t = \beta b_{t-1} + (1 - \beta) \bar f_{t-1}, \qquad b_1 = \bar f_0$$

    Call it with the costs of a step. It returns the average *before* this step, which is 0 at the first one,
    and then adds the costs of the step. The average is a buffer, so it is saved with the model. Use it where
    the expected cost changes slowly from step to step.

    Args:
        decay: β, from 0 (the mean cost of the last step) to below 1.

    >>> average = MovingAverage(decay=0.5)
    >>> tuple(average(torch.tensor([x])).item() for x in (4.0, 2.0, 0.0))
    (0.0, 4.0, 3.0)

    References:
        | Simple statistical gradient-following algorithms for connectionist reinforcement
        | learning (Williams, 1992)
        | https://doi.org/10.1007/BF00992696
    """

    average: Tensor
    steps: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay is {decay}; expected 0 <= decay < 1. Use 0.9, for instance.")
        self.decay = decay
        self.register_buffer("average", torch.zeros(()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def forward(self, cost: Tensor, *, group: distributed.ProcessGroup | None = None) -> Tensor:
        """Return the average of the earlier steps, (), and add the costs of this step to it.

        Args:
            cost: (*batch, k)
            group: the processes whose costs are averaged; None for this process alone.
        """
        check_costs(cost)
        before = self.average.to(cost).clone()
        total, count = _total(cost.detach(), group)
        mean = (total / count).to(self.average)
        started = self.steps > 0
        later = self.decay * self.average + (1.0 - self.decay) * mean
        some = count > 0  # a step without costs changes nothing
        self.average.copy_(torch.where(some, torch.where(started, later, mean), self.average))
        self.steps.add_(some)
        return before
