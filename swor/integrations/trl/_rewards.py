"""Rewards and advantages of groups of completions, one group per prompt.

A prompt without rewards is left out. A single completion cannot be left out, since that would be biased.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from swor.rules.advantages import advantages
from swor.rules.unordered_set import unordered_set
from swor.types import Objective, Sample


class Goal(NamedTuple):
    """What is trained for: an objective of :func:`swor.advantages`, and the range rewards are clipped to."""

    name: Objective = "mean"
    m: int | None = None
    clip_range: Sequence[float] | None = None

    def clip(self, reward: Tensor) -> Tensor:
        """Return the rewards in the range."""
        return reward.clamp(*self.clip_range) if self.clip_range else reward


def checked(function: Any, name: str) -> Any:
    """Return a reward function that raises an error for a NaN, which TRL would take for None."""
    if isinstance(function, Module):
        return function
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    ):

        @wraps(function)
        async def later(**given: Any) -> Any:
            return _without_nan(await function(**given), name)

        return later

    @wraps(function)
    def now(**given: Any) -> Any:
        return _without_nan(function(**given), name)

    return now


def _without_nan(rewards: Sequence[float | None], name: str) -> Sequence[float | None]:
    for place, reward in enumerate(rewards):
        if reward is not None and math.isnan(reward):
            _refuse_nan(name, place)
    return rewards


def _refuse_nan(name: str, place: int) -> None:
    raise ValueError(
        f"the reward function {name!r} returned NaN for completion {place}; expected a number, or None for "
        "every completion of a prompt that it does not apply to."
    )


def check_models(
    rewards: Tensor, functions: Sequence[Callable[..., Any]], names: Sequence[str]
) -> None:
    """Check that no reward model returned NaN; rewards are (completions, functions)."""
    for column, (function, name) in enumerate(zip(functions, names, strict=True)):
        missing = rewards[:, column].isnan()
        if isinstance(function, Module) and bool(missing.any()):
            _refuse_nan(name, int(missing.long().argmax()))


def group_rewards(rewards: Tensor, reward_weights: Tensor, k: int) -> Tensor:
    """Return the weighted sums of rewards (completions, functions), (prompts, k); NaN without any reward.

    A prompt for which every function returned None has NaN for all of its completions.
    """
    total = (rewards * reward_weights.to(rewards)).nansum(-1)
    missing = rewards.isnan().all(-1)
    groups = missing.view(-1, k)
    split = groups.any(-1) & ~groups.all(-1)
    if bool(split.any()):
        prompt = int(split.long().argmax())
        places = groups[prompt].nonzero().flatten().tolist()
        raise ValueError(
            f"every reward function returned None for completions {places} of prompt {prompt}, but not for "
            f"its others; expected a reward for all {k} of them or for none, since leaving out one "
            "completion of a group would bias the estimate. Return a number, or None for every completion "
            "of the prompt, which leaves out the prompt."
        )
    return torch.where(missing, torch.nan, total).view(-1, k)


def group_advantages(sample: Sample, reward: Tensor, penalty: Tensor, goal: Goal) -> Tensor:
    r"""$A_s$ of the objective of the rewards, minus the mean of the penalty, (batch, k).

    The penalty is $\beta \log(p_s / p_{\text{ref}, s})$, the KL divergence of TRL, which is a mean over
    completions whatever the objective is. A group whose rewards are NaN is left out: its advantages are 0.
    """
    if sample.k == 1:  # an evaluation: TRL has no advantages either
        return torch.zeros_like(sample.log_p)
    scored = ~reward.isnan().all(-1, keepdim=True)
    reward = torch.where(scored, goal.clip(reward), 0.0)
    log_p, rest = sample.log_p, sample.log_rest
    total = advantages(log_p, reward, log_rest=rest, objective=goal.name, m=goal.m)
    of_penalty = advantages(log_p, penalty, log_rest=rest)
    return torch.where(scored, total - of_penalty, 0.0)


def advantage_moments(sample: Sample, reward: Tensor) -> Tensor:
    r"""$n$, $\sum w_s$, $\sum w_s a_s$ and $\sum w_s a_s^2$ of the groups with rewards, (4,).

    Here $a_s = r_s - b_s$, the advantage of a completion.
    """
    scored = ~reward.isnan().all(-1, keepdim=True)
    weights = unordered_set(sample)
    reward = torch.where(scored & (sample.log_p > -torch.inf), reward, 0.0)
    above = reward - weights.baseline(reward)
    weight = weights.weight * scored
    number = scored.sum() * sample.k
    return torch.stack(
        [number, weight.sum(), (weight * above).sum(), (weight * above.square()).sum()]
    )


def deviation(moments: Tensor) -> Tensor:
    """Return the standard deviation of advantages, as TRL has it (n − 1), from their moments."""
    number, mass, first, second = moments.unbind()
    # If no group of the step has rewards, all moments are 0, and so is the deviation.
    mass, number = mass.clamp(min=torch.finfo(mass.dtype).tiny), number.clamp(min=2)
    return ((second / mass - (first / mass).square()) * number / (number - 1)).clamp(min=0.0).sqrt()
