r"""TRL's metrics as expectations over the model's completions, from distinct ones.

Distinct completions are no sample of the model by themselves: the unlikely ones are over-represented. So a
mean over completions is $\sum_s w_s f_s$ with the weights of :func:`swor.unordered_set`, which is unbiased
for every prompt, and a mean over tokens is the ratio of two such means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from swor.diagnostics.groups import group_statistics
from swor.integrations.trl._rewards import Goal
from swor.rules.best_of import best_of
from swor.rules.log_success import log_success
from swor.rules.unordered_set import murthy_variance, unordered_set
from swor.types import Sample


class Completions(NamedTuple):
    """What is known of the completions of all processes, (prompts, k)."""

    length: Tensor
    truncated: Tensor
    masked_length: Tensor  # the number of tokens that count in the loss
    divergence: Tensor | None  # log p − log p_ref of these tokens


def ratio(number: Tensor, of: Tensor) -> Tensor:
    """Return Σ number / Σ of, and 0 where nothing counts."""
    total = of.sum()
    return torch.where(total > 0.0, number.sum() / torch.where(total > 0.0, total, 1.0), 0.0)


def length_metrics(weight: Tensor, found: Completions) -> dict[str, float]:
    """Return TRL's metrics of lengths and of the divergence from the reference."""
    ended = weight * ~found.truncated
    numbers = {
        "completions/mean_length": ratio(weight * found.length, weight),
        "completions/clipped_ratio": ratio(weight * found.truncated, weight),
        "completions/mean_terminated_length": ratio(ended * found.length, ended),
    }
    if found.divergence is not None:
        numbers["kl"] = ratio(weight * found.divergence, weight * found.masked_length)
    return {name: number.item() for name, number in numbers.items()}


def reward_metrics(
    sample: Sample, reward: Tensor, by_function: Tensor, names: Sequence[str]
) -> dict[str, float]:
    """Return mean and spread of the rewards (prompts, k), and by function (prompts, k, functions)."""
    found = {"reward": reward} | {
        f"rewards/{name}": by_function[..., i] for i, name in enumerate(names)
    }
    numbers = {}
    for name, given in found.items():
        of_mean, of_spread = (
            ("reward", "reward_std") if name == "reward" else (f"{name}/mean", f"{name}/std")
        )
        mean, spread = mean_and_spread(sample, given)
        numbers[of_mean] = mean.item()
        if sample.k > 1:  # one draw each: TRL's own is right
            numbers[of_spread] = spread.item()
    return numbers


def mean_and_spread(sample: Sample, number: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\hat\mu$ and $\hat\sigma$ of numbers (prompts, k) over prompts and completions; NaN does not count.

    $$\hat\sigma^2 = \frac1N \sum_i \sum_s w_{is} (f_{is} - \hat\mu)^2 + \frac{1}{N^2} \sum_i \hat V_i$$

    The first term alone is too small by the variance of $\hat\mu$, of which the second is an unbiased
    estimate, by :func:`swor.murthy_variance`. So $\hat\sigma^2$ is unbiased where every number counts.
    """
    counts = ~number.isnan() & (sample.log_p > -torch.inf)
    weight = unordered_set(sample).weight * counts
    if not bool(counts.any()):
        nothing = torch.full((), torch.nan)
        return nothing, nothing
    number = torch.where(counts, number, 0.0)
    mean = ratio(weight * number, weight)
    above = torch.where(counts, number - mean, 0.0)
    variance = ratio(weight * above.square(), weight)
    if sample.k > 1:
        variance = variance + murthy_variance(sample, above).sum() / weight.sum().square()
    return mean, variance.clamp(min=0.0).sqrt()  # may be negative by rounding


def set_metrics(sample: Sample, reward: Tensor, goal: Goal) -> dict[str, float]:
    """Return the metrics that TRL does not have: means over the prompts that have rewards."""
    scored = ~reward.isnan().all(-1)
    if not bool(scored.any()):
        return {}
    sample, reward = of_prompts(sample, scored), reward[scored]
    numbers = {"reward": unordered_set(sample).mean(reward)}
    if goal.m is not None:
        estimate = (
            best_of(sample, goal.m) if goal.name == "best_of" else log_success(sample, goal.m)
        )
        numbers[goal.name] = estimate.mean(goal.clip(reward))
    if sample.k > 1:
        numbers |= group_statistics(sample, reward)._asdict()
    else:  # there is no standard error of a single draw
        one = torch.ones_like(sample.log_p[..., 0])
        covered = unordered_set(sample).mean(sample.log_p.exp())
        numbers |= {"mass_covered": covered, "effective_sample_size": one}
        numbers["duplicates_avoided"] = torch.zeros_like(one)
    return {f"swor/{name}": number.mean().item() for name, number in numbers.items()}


def of_prompts(sample: Sample, chosen: Tensor) -> Sample:
    """Return the groups of some of the prompts."""
    rest = None if sample.log_rest is None else sample.log_rest[chosen]
    return Sample(sample.value[chosen], sample.log_p[chosen], rest, scheme=sample.scheme)


def token_weights(weight: Tensor, masked_length: Tensor) -> Tensor:
    r"""$k w_s / \bar\ell$ with the mean length $\bar\ell$: a mean of sums over tokens becomes one per token.

    Batches that are cut out of the groups later have parts of them, of which the weights say little. With
    the length of all of them as the divisor, the mean over these batches is that over the groups.
    """
    mean_length = ratio(weight * masked_length, weight)
    return weight.shape[-1] * weight * torch.where(mean_length > 0.0, 1.0 / mean_length, 0.0)
