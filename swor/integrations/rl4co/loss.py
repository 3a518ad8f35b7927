"""The loss of sampled solutions, by the name of an estimator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from swor.estimators.baselines import Baseline, batch_mean
from swor.estimators.registry import ESTIMATORS
from swor.integrations.rl4co.solutions import (
    Solutions,
    ancestral_solutions,
    beam_solutions,
    sample_solutions,
)
from swor.types import Sample, Scheme, Weights

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict


class EstimatedLoss(NamedTuple):
    """The loss of every instance, and what it is estimated from.

    Attributes:
        loss: (batch,); its value estimates the expected cost, its gradient the gradient of that.
        solutions: k of every instance.
    """

    loss: Tensor
    solutions: Solutions


def solution_loss(
    policy: ConstructivePolicy,
    env: RL4COEnvBase,
    td: TensorDict,
    k: int,
    *,
    estimator: str = "unordered_set",
    start: int | Tensor | None = None,
    max_steps: int | None = None,
    generator: torch.Generator | None = None,
) -> EstimatedLoss:
    r"""$L$ with $E[L] = E[-r]$ and $E[\nabla L] = \nabla E[-r]$ from $k$ solutions per instance.

    Args:
        policy: any constructive policy of rl4co.
        env: the environment.
        td: instances, as ``env.reset`` returns them, (batch,).
        k: the number of solutions per instance.
        estimator: the name of a score-function estimator in :data:`swor.ESTIMATORS`. Some compare
            with the greedy solution or with further independent ones, which are then decoded too.
        start: the first action of all solutions; None lets the policy choose.
        max_steps: the largest number of actions of a solution; see :class:`SolutionModel`.
        generator: the source of randomness.

    >>> from rl4co.envs import TSPEnv
    >>> from rl4co.models import AttentionModelPolicy
    >>> env = TSPEnv(generator_params={"num_loc": 5})
    >>> policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2)
    >>> loss, solutions = solution_loss(policy, env, env.reset(batch_size=[3]), 4)
    >>> loss.mean().backward()
    """
    rule, distinct, baseline = parts_of(estimator)
    greedy = partial(beam_solutions, policy, env, td, k=1, start=start, max_steps=max_steps)
    draw, independent = (
        partial(f, policy, env, td, start=start, max_steps=max_steps, generator=generator)
        for f in (sample_solutions if distinct else ancestral_solutions, ancestral_solutions)
    )
    solutions = draw(k=k)
    cost = -solutions.reward.to(solutions.sample.log_p.dtype)
    compared = _compared_with(baseline, cost, greedy, independent)
    return EstimatedLoss(rule(solutions.sample).loss(cost, baseline=compared), solutions)


def parts_of(
    estimator: str,
) -> tuple[Callable[[Sample], Weights], bool, Baseline]:
    """The rule of an estimator, whether its solutions are distinct, and its baseline."""
    schemes = (Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT)
    usable = {n: e for n, e in ESTIMATORS.items() if e.rule and e.scheme in schemes}
    entry = usable.get(estimator)
    if entry is None or entry.rule is None or entry.baseline is None:
        raise ValueError(
            f"estimator is {estimator!r}; expected one that weights sampled sequences: "
            f"{', '.join(usable)}."
        )
    return entry.rule, entry.scheme == Scheme.WITHOUT_REPLACEMENT, entry.baseline


@torch.no_grad()
def _compared_with(
    baseline: Baseline,
    cost: Tensor,
    greedy: Callable[[], Solutions],
    independent: Callable[..., Solutions],
) -> Literal["built-in"] | float | Tensor:
    """What the costs (batch, k) are compared with."""
    if baseline == Baseline.NONE:
        return 0.0
    if baseline == Baseline.BATCH_MEAN:
        return batch_mean(cost)
    if baseline == Baseline.GREEDY:
        return -greedy().reward.to(cost.dtype)
    if baseline in (Baseline.SAMPLED, Baseline.SHARED_SAMPLE):
        others = independent(k=baseline.evaluations(cost.shape[-1]))
        return -others.reward.to(cost.dtype)
    return "built-in"
