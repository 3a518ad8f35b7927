"""TRL's metrics in the trainer: what TRL logs is replaced by weighted estimates."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor
from trl import RLOOTrainer

from swor.integrations.trl._metrics import (
    Completions,
    length_metrics,
    reward_metrics,
    set_metrics,
    token_weights,
)
from swor.integrations.trl._rewards import Goal
from swor.rules.unordered_set import unordered_set
from swor.types import Sample

COLLAPSED = 0.99  # the mass covered from which more completions are hardly worth their cost


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
        found = Completions(
            gather(self._lengths).view_as(weight),
            gather(self._truncated).view_as(weight),
            gather(masked),
            None if divergence is None else gather(divergence),
        )
        self._replace(length_metrics(weight, found))
        self._replace(reward_metrics(everyone, reward, by_function, self.reward_func_names))
        own = set_metrics(everyone, reward, self._goal)
        for name, number in own.items():
            self._mode_metrics[name].append(number)
        self._warn_if_collapsed(own.get("swor/mass_covered", 0.0))
        first = self.accelerator.process_index * len(sample.log_p)
        mine = slice(first, first + len(sample.log_p))
        return sample.k * weight[mine], token_weights(weight, found.masked_length)[mine]

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
