"""Training of a policy of rl4co: the loss of solutions by the name of an estimator, and a LightningModule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import torch
from rl4co.models import RL4COLitModule
from torch import Tensor

from swor.estimators.baselines import BaselineInputs
from swor.estimators.registry import ESTIMATORS
from swor.estimators.score_function import ScoreFunctionEstimator
from swor.integrations.rl4co._checks import check_env, check_policy
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

METRICS = {
    "train": ["loss", "reward", "max_reward"],
    "val": ["reward"],
    "test": ["reward", "max_reward"],
}


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


class Options(TypedDict, total=False):
    """The options of every module of rl4co, which its class ``RL4COLitModule`` describes."""

    batch_size: int
    val_batch_size: int | list[int] | None
    test_batch_size: int | list[int] | None
    train_data_size: int
    val_data_size: int
    test_data_size: int
    optimizer: str | type[torch.optim.Optimizer] | partial[torch.optim.Optimizer]
    optimizer_kwargs: dict[str, Any]
    lr_scheduler: str | type | partial[Any] | None
    lr_scheduler_kwargs: dict[str, Any]
    lr_scheduler_interval: str
    lr_scheduler_monitor: str
    generate_default_data: bool
    shuffle_train_dataloader: bool
    dataloader_num_workers: int
    data_dir: str
    log_on_step: bool
    metrics: dict[str, list[str]]


class PolicyGradient(RL4COLitModule):  # type: ignore[misc]  # rl4co is not checked
    r"""Minimises $E[-r]$ with $k$ solutions per instance, by any score-function estimator.

    For rl4co's ``RL4COTrainer``, in place of rl4co's ``REINFORCE`` or ``POMO``. The loss is that of
    :func:`solution_loss`. With an estimator that samples without replacement, such as
    ``unordered_set``, the $k$ solutions of an instance are all different.

    It logs ``train/reward``, the estimate of the expected reward; ``train/max_reward``, of the best of
    the $k$ solutions; ``val/reward`` and ``test/reward`` of the solution that the policy decodes in
    that phase (the greedy one, unless it says otherwise); and ``test/max_reward``, of the best of $k$
    distinct solutions. The option ``metrics`` chooses others, as for every module of rl4co: ``max_reward``
    is there in all phases.

    A checkpoint has weights and plain settings only, so that it can be loaded without trust in who
    wrote it: ``PolicyGradient.load_from_checkpoint(path, env=env, policy=policy)``.

    Args:
        env: a sequential environment.
        policy: any constructive policy.
        estimator: the name of a score-function estimator in :data:`swor.ESTIMATORS`.
        k: the number of solutions per instance.
        start: the first action of all solutions; None lets the policy choose.
        max_steps: the largest number of actions of a solution; see :class:`SolutionModel`.
        options: those of every module of rl4co, such as ``batch_size`` and ``optimizer_kwargs``.

    >>> from rl4co.envs import CVRPEnv
    >>> from rl4co.models import AttentionModelPolicy
    >>> env = CVRPEnv(generator_params={"num_loc": 20})
    >>> policy = AttentionModelPolicy(env_name="cvrp")
    >>> module = PolicyGradient(env, policy, estimator="unordered_set", k=8, batch_size=64)
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: ConstructivePolicy,
        *,
        estimator: str = "unordered_set",
        k: int = 8,
        start: int | None = None,
        max_steps: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        check_env(env)
        check_policy(policy)
        score_function_estimator(estimator)  # an error comes now, not in the first step
        super().__init__(env, policy, **{"metrics": METRICS, **options})
        self.estimator, self.k, self.start, self.max_steps = estimator, k, start, max_steps

    def shared_step(
        self, batch: TensorDict, batch_idx: int, phase: str, dataloader_idx: int | None = None
    ) -> dict[str, Any]:
        """Run a step of training, validation or testing, as rl4co calls it."""
        td = self.env.reset(batch)
        out = self._train(td) if phase == "train" else self._evaluate(td, phase)
        metrics = self.log_metrics(out, phase, dataloader_idx=dataloader_idx)
        return {"loss": out.get("loss"), **metrics}

    def _train(self, td: TensorDict) -> dict[str, Tensor]:
        loss, solutions = solution_loss(
            self.policy,
            self.env,
            td,
            self.k,
            estimator=self.estimator,
            start=self.start,
            max_steps=self.max_steps,
        )
        best = solutions.reward.max(-1).values
        # The value of the loss is the estimate of the expected cost.
        return {"loss": loss.mean(), "reward": -loss.detach(), "max_reward": best}

    def _evaluate(self, td: TensorDict, phase: str) -> dict[str, Tensor]:
        out = {}
        if "max_reward" in getattr(self, f"{phase}_metrics"):
            found = sample_solutions(
                self.policy, self.env, td, self.k, start=self.start, max_steps=self.max_steps
            )
            out["max_reward"] = found.reward.max(-1).values
        decoded = self.policy(td, self.env, phase=phase, select_best=True)
        return out | {"reward": decoded["reward"]}
