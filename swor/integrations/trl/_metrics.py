r"""TRL's metrics as expectations over the model's completions, from distinct ones.

Distinct completions are not independent samples of the model: unlikely ones are over-represented. So a
mean over completions is $\sum_s w_s f_s$ with the weights of :func:`swor.unordered_set`, which is unbiased
for every prompt, and a mean over tokens is the ratio of two such means. :class:`WeightedMetrics` puts them
in the place of what TRL has logged.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl import RLOOTrainer

from swor.diagnostics.groups import group_statistics
from swor.integrations.trl._rewards import Goal
from swor.rules.best_of import best_of
from swor.rules.log_success import log_success
from swor.rules.unordered_set import murthy_variance, unordered_set
from swor.types import Sample

COLLAPSED = 0.99  # the mass covered from which more completions are hardly worth their cost


def ratio(number: Tensor, of: Tensor) -> Tensor:
    """Return Σ number / Σ of, and 0 where nothing counts."""
    total = of.sum()
    return torch.where(total > 0.0, number.sum() / total, 0.0)


def length_metrics(
    weight: Tensor,
    length: Tensor,
    truncated: Tensor,
    masked_length: Tensor,
    divergence: Tensor | None,
) -> dict[str, float]:
    """Return TRL's metrics of lengths and of the divergence from the reference.

    All are (prompts, k), of all processes. The masked length counts the tokens that count in the loss, and
    the divergence is log p − log p_ref of these.
    """
    ended = weight * ~truncated
    numbers = {
        "completions/mean_length": ratio(weight * length, weight),
        "completions/clipped_ratio": ratio(weight * truncated, weight),
        "completions/mean_terminated_length": ratio(ended * length, ended),
    }
    if divergence is not None:
        numbers["kl"] = ratio(weight * divergence, weight * masked_length)
    return {name: number.item() for name, number in numbers.items()}


def reward_metrics(
    sample: Sample, reward: Tensor, by_function: Tensor, names: Sequence[str]
) -> dict[str, float]:
    """Return mean and spread of the rewards (prompts, k), and by function (prompts, k, functions)."""
    columns = {("reward", "reward_std"): reward}
    for i, name in enumerate(names):
        columns[f"rewards/{name}/mean", f"rewards/{name}/std"] = by_function[..., i]
    numbers = {}
    for (of_mean, of_spread), given in columns.items():
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
        numbers |= {"mass_covered": sample.log_p[..., 0].exp(), "effective_sample_size": one}
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


class WeightedMetrics(RLOOTrainer):  # type: ignore[misc]  # trl is not checked
    """TRL's trainer, which logs what the weights of completions say.

    The trainer that draws completions keeps the attributes below, of its process or of all of them.
    """

    _sample: Sample  # of this process
    _lengths: Tensor  # of the completions of this process, (prompts · k,)
    _truncated: Tensor  # likewise
    _rewards: Tensor  # of all processes, (prompts, k); NaN without any
    _by_function: Tensor  # of all processes, (prompts, k, functions)
    _goal: Goal
    _warned = False

    def __init__(self, *args: Any, **options: Any) -> None:
        self._scores: list[tuple[Tensor, Tensor | None]] = []
        super().__init__(*args, **options)

    def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> Any:
        """Compute TRL's log-probabilities and entropies, and keep them for the metrics."""
        found = super()._get_per_token_logps_and_entropies(*args, **options)
        entropies = None if found[1] is None else found[1].detach()
        self._scores.append((found[0].detach(), entropies))
        return found

    def _replace_logged(self, advantages: Tensor) -> None:
        logged = self._logs["advantages"]
        everyone = self.accelerator.gather(advantages).tolist()
        for _ in range(min(len(everyone), len(logged))):
            logged.pop()
        logged.extend(everyone)

    def _log_groups(self, masked: Tensor, divergence: Tensor | None) -> tuple[Tensor, Tensor]:
        """Replace TRL's metrics by unbiased ones; return the weights k w of completions and of tokens."""
        gather, sample = self.accelerator.gather, self._sample
        value, log_p, log_rest = (gather(x) for x in (sample.value, sample.log_p, sample.log_rest))
        everyone = Sample(value, log_p, log_rest, scheme=sample.scheme)
        weight = unordered_set(everyone).weight
        reward, by_function = self._rewards.to(weight.dtype), self._by_function.to(weight.dtype)
        length, truncated = (gather(x).view_as(weight) for x in (self._lengths, self._truncated))
        masked, divergence = gather(masked), None if divergence is None else gather(divergence)
        self._replace(length_metrics(weight, length, truncated, masked, divergence))
        self._replace(reward_metrics(everyone, reward, by_function, self.reward_func_names))
        own = set_metrics(everyone, reward, self._goal)
        for name, number in own.items():
            self._mode_metrics[name].append(number)
        self._warn_if_collapsed(own.get("swor/mass_covered", 0.0))
        return sample.k * weight[self._own], token_weights(weight, masked)[self._own]

    @property
    def _own(self) -> slice:
        """The prompts of this process among those of all processes."""
        number = len(self._sample.log_p)
        first = self.accelerator.process_index * number
        return slice(first, first + number)

    @property
    def _mode_metrics(self) -> Any:
        return self._metrics["train" if self.model.training else "eval"]

    def _replace(self, numbers: dict[str, float]) -> None:
        """Replace the numbers that TRL has just logged under these names."""
        for name, number in numbers.items():
            if self._mode_metrics.get(name):
                self._mode_metrics[name][-1] = number

    def _warn_if_collapsed(self, covered: float) -> None:
        if covered > COLLAPSED and self.model.training and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.num_generations} completions cover {covered:.1%} of the probability of a prompt on "
                "average, so that most of them have next to no weight. Lower num_generations, or raise "
                "temperature; swor/mass_covered in the log says how it develops.",
                stacklevel=2,
            )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Compute TRL's loss, and replace its metrics."""
        self._scores.clear()
        loss: Tensor = super()._compute_loss(model, inputs)
        log_p, entropies = self._scores[0]
        tokens, weight, advantage = (
            inputs[x] for x in ("completion_mask", "weights", "advantages")
        )
        change = ((log_p * tokens).sum(-1) - inputs["old_logps"]).exp()
        low = weight * ((change < 1 - self.epsilon_low) & (advantage < 0))
        high = weight * ((change > 1 + self.epsilon_high) & (advantage > 0))
        numbers = {"clip_ratio/low_mean": low, "clip_ratio/high_mean": high}
        numbers["clip_ratio/region_mean"] = low + high
        if entropies is not None:
            numbers["entropy"] = inputs["token_weights"] * (entropies * tokens).sum(-1)
        gather = self.accelerator.gather
        self._replace({name: gather(x).mean().item() for name, x in numbers.items()})
        return loss
