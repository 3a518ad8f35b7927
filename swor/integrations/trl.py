"""A trainer for TRL: distinct completions of every prompt, weighted without bias."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from swor.diagnostics.groups import group_statistics
from swor.estimators.unordered import unordered_set
from swor.integrations.transformers import sample_completions
from swor.types import Sample

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from peft import PeftConfig, PeftModel
    from transformers import (
        BitsAndBytesConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerCallback,
    )

TESTED = "1.16"


def check_version() -> None:
    """The trainer overrides methods that TRL may change: it runs with what it was tested with."""
    try:
        installed = version("trl")
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(
            "swor.integrations.trl needs the package 'trl', which is not installed. Install it "
            "with: pip install 'swor[trl]'",
            name="trl",
        ) from error
    if installed.split(".")[:2] != TESTED.split("."):
        raise ImportError(
            f"trl {installed} is installed; expected {TESTED}, the version that UnorderedSetTrainer "
            f"is tested with. Install it with: pip install 'trl~={TESTED}.0'"
        )


check_version()

from trl import RLOOConfig, RLOOTrainer  # noqa: E402
from trl.models import unwrap_model_for_generation  # noqa: E402


class UnorderedSetTrainer(RLOOTrainer):  # type: ignore[misc]  # trl is not checked
    r"""$\nabla E[r] \approx \sum_s p_s R(S, s) \nabla \log p_s (r_s - b_s)$ for every prompt.

    As TRL's ``RLOOTrainer``, with :func:`sample_completions` in place of ``generate``, so that the
    ``num_generations`` completions of a prompt are all different, and the weights and the baseline of
    :func:`swor.unordered_set` in place of the leave-one-out mean. Clipping, the KL penalty, saving and
    resuming are TRL's.

    It logs, beside TRL's metrics, means over the groups of :func:`swor.group_statistics`:
    ``swor/mass_covered``, ``swor/effective_sample_size``, ``swor/standard_error`` of the mean reward,
    ``swor/duplicates_avoided``; and ``swor/reward``, the unbiased estimate of the expected reward,
    which the plain mean over distinct completions (``reward``) is not.

    Args:
        model: a causal language model, with an adapter or without, or its name.
        reward_funcs: one or several reward functions, as for ``RLOOTrainer``.
        args: the settings; generation is by the model's own probabilities at ``temperature``, so
            ``top_p``, ``top_k``, ``min_p`` and ``repetition_penalty`` stay at their defaults.
        train_dataset: has a column ``prompt``.
        eval_dataset: likewise.
        processing_class: the tokenizer.
        reward_processing_classes: tokenizers of reward models.
        callbacks: of the training loop.
        optimizers: the optimizer and its schedule.
        quantization_config: how to quantise a model that is given by its name.
        peft_config: an adapter to train in place of the model, such as ``peft.LoraConfig``.
    """

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel,
        reward_funcs: Callable[..., list[float]] | list[Callable[..., list[float]]],
        args: RLOOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | IterableDataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        reward_processing_classes: list[PreTrainedTokenizerBase] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, Any] = (None, None),
        quantization_config: BitsAndBytesConfig | None = None,
        peft_config: PeftConfig | None = None,
    ) -> None:
        if args is not None:
            _check_settings(args)
        super().__init__(
            model=model,
            reward_funcs=reward_funcs,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            reward_processing_classes=reward_processing_classes,
            callbacks=callbacks,
            optimizers=optimizers,
            quantization_config=quantization_config,
            peft_config=peft_config,
        )

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: dict[str, Any]
    ) -> list[list[int]]:
        """Distinct completions of every group of equal prompts; remembers their sample."""
        if images or multimodal_fields:
            raise ValueError(
                "a prompt has images; expected text, all that completions are drawn of."
            )
        k = self.num_generations if self.model.training else self.num_generations_eval
        prompts = one_of_each(prompt_ids, k)
        device, pad = self.accelerator.device, self._tokenizer.pad_token_id
        ids = [torch.tensor(prompt, device=device) for prompt in prompts]
        input_ids = pad_sequence(ids, True, pad, padding_side="left")
        mask = pad_sequence([torch.ones_like(x) for x in ids], True, 0, padding_side="left")
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            torch.no_grad(),
            self._dist.summon_full_params(self.model_wrapped, recurse=False),
        ):
            self._sample = sample_completions(
                model,
                input_ids,
                mask,
                k=k,
                max_new_tokens=self.max_completion_length,
                eos_token_id=self.eos_token_ids,
                pad_token_id=pad,
                logits_processor=None if self.temperature == 1.0 else self._at_temperature,
            )
        return cut(self._sample.value.flatten(0, 1).tolist(), self.eos_token_ids)

    def _at_temperature(self, tokens: Tensor, logits: Tensor) -> Tensor:
        return logits / float(self.temperature)

    def _calculate_rewards(
        self, inputs: Any, prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> Tensor:
        """TRL's rewards, all of them numbers; remembers those of this process."""
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        if bool(rewards.isnan().all(-1).any()):
            raise ValueError(
                "every reward function returned None for a completion; expected a reward for each, "
                "since leaving one out of a sample without replacement would bias the others."
            )
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(-1)
        first = self.accelerator.process_index * len(prompts)
        self._rewards = total[first : first + len(prompts)]
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch, with other advantages."""
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        batch["advantages"] = weighted(self._sample, batch["advantages"])
        logged = self._logs["advantages"]
        everyone = self.accelerator.gather(batch["advantages"]).tolist()
        for _ in range(min(len(everyone), len(logged))):
            logged.pop()
        logged.extend(everyone)
        self._log_groups()
        return batch

    def _log_groups(self) -> None:
        reward = self._rewards.view(-1, self._sample.k).to(self._sample.log_p.dtype)
        numbers = {"reward": unordered_set(self._sample).mean(reward)}
        if self._sample.k > 1:
            numbers |= group_statistics(self._sample, reward)._asdict()
        mode = "train" if self.model.training else "eval"
        for name, number in numbers.items():
            mean = self.accelerator.gather(number).mean().item()
            self._metrics[mode][f"swor/{name}"].append(mean)


def weighted(sample: Sample, advantages: Tensor) -> Tensor:
    r"""$k w_s (r_s - b_s)$ from the advantages $a_s = r_s - \frac{1}{k-1} \sum_{s' \ne s} r_{s'}$.

    The loss of TRL is a mean over completions, hence the factor $k$. The baseline moves along with
    the rewards of a group, so it is enough to know how far each is from their mean, $a_s (k - 1) / k$.

    Args:
        sample: the completions of every group.
        advantages: of leave-one-out REINFORCE, (batch · k,); scaled and shifted ones give scaled ones.
    """
    k = sample.k
    if k == 1:
        return advantages
    from_mean = advantages.view(-1, k).to(sample.log_p.dtype) * ((k - 1) / k)
    weights = unordered_set(sample)
    advantage = k * weights.weight * (from_mean - weights.baseline(from_mean))
    return advantage.flatten().to(advantages.dtype)


def one_of_each(prompts: Sequence[list[int]], k: int) -> list[list[int]]:
    """One prompt of each group of k equal ones.

    >>> one_of_each([[1, 2], [1, 2], [3], [3]], 2)
    [[1, 2], [3]]
    """
    groups = [prompts[i : i + k] for i in range(0, len(prompts), k)]
    if any(len(group) < k or any(prompt != group[0] for prompt in group) for group in groups):
        raise ValueError(
            f"the {len(prompts)} prompts of this process are not groups of {k} equal ones; expected "
            "all completions of a prompt on one process. Make per_device_train_batch_size · "
            "steps_per_generation (and per_device_eval_batch_size) a multiple of num_generations."
        )
    return [group[0] for group in groups]


def cut(completions: Sequence[list[int]], ends: Sequence[int]) -> list[list[int]]:
    """Completions up to the first end, which they keep.

    >>> cut([[5, 0, 9], [5, 6, 7]], [0])
    [[5, 0], [5, 6, 7]]
    """
    stops = [next((t for t, x in enumerate(c) if x in ends), len(c)) for c in completions]
    return [c[: stop + 1] for c, stop in zip(completions, stops, strict=True)]


def _check_settings(args: RLOOConfig) -> None:
    plain = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    plain |= {"generation_kwargs": None, "use_vllm": False}
    plain |= {"use_transformers_continuous_batching": False}
    for name, value in plain.items():
        if getattr(args, name) != value:
            raise ValueError(
                f"{name} is {getattr(args, name)!r}; expected {value!r}: UnorderedSetTrainer samples "
                "from the model itself, with sample_completions. Leave it out."
            )
