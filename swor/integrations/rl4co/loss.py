"""The loss of sampled solutions, by the name of an estimator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from swor.estimators.baselines import BaselineInputs
from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import ScoreFunctionEstimator
from swor.integrations.rl4co.solutions import (
    Solutions,
    ancestral_solutions,
    beam_solutions,
    sample_solutions,
)
from swor.types import Scheme

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict


class EstimatedLoss(NamedTuple):
    """The loss of every instance, and the solutions that it is estimated from.

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
    r"""Return the loss of every instance from k solutions, by any score-function estimator.

    $$E[L] = E[-r], \qquad E[\nabla L] = \nabla E[-r]$$

    The equations hold for an unbiased estimator; $r$ is the reward of a solution.

    Args:
        policy: any constructive policy of rl4co.
        env: the environment.
        td: instances, as ``env.reset`` returns them, (batch,).
        k: the number of solutions per instance.
        estimator: the name of a score-function estimator in :data:`ESTIMATORS`. If its baseline
            needs the greedy solution or additional independent ones, they are decoded as well.
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
    found = score_function_estimator(estimator)
    independent, distinct = (
        partial(draw, policy, env, td, start=start, max_steps=max_steps, generator=generator)
        for draw in (ancestral_solutions, sample_solutions)
    )
    greedy = partial(beam_solutions, policy, env, td, start=start, max_steps=max_steps)
    without_replacement = found.scheme == Scheme.WITHOUT_REPLACEMENT
    solutions = distinct(k=k) if without_replacement else independent(k=k)
    inputs = BaselineInputs(
        _cost(solutions),
        sampled=lambda n: _cost(independent(k=n)),
        greedy=lambda: _cost(greedy(k=1)),
    )
    weights, baseline = found.rule(solutions.sample), found.baseline(inputs)
    return EstimatedLoss(weights.loss(inputs.cost, baseline=baseline), solutions)


def _cost(solutions: Solutions) -> Tensor:
    return -solutions.reward.to(solutions.sample.log_p.dtype)


def score_function_estimator(name: str) -> ScoreFunctionEstimator:
    """Return the score-function estimator of a name, if it is one for sampled sequences."""
    schemes = (Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT)
    usable = {n: e.function for n, e in ESTIMATORS.items() if e.scheme in schemes}
    found = usable.get(name)
    if not isinstance(found, ScoreFunctionEstimator):
        raise ValueError(
            f"estimator is {name!r}; expected one that weights sampled sequences: "
            f"{', '.join(usable)}."
        )
    return found
