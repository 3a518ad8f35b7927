"""A trainer for TRL that uses distinct completions of every prompt and unbiased weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel
from trl import RLOOConfig, RLOOTrainer
from trl.models import unwrap_model_for_generation

from swor.diagnostics.groups import group_statistics
from swor.integrations.transformers import sample_completions
from swor.integrations.trl._compatibility import accepted, check_attributes, known
from swor.integrations.trl._groups import best_of_weighted, cut, one_of_each, padded, weighted
from swor.integrations.trl.config import check_settings
from swor.rules.best_of import best_of
from swor.rules.unordered_set import unordered_set

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset
    from peft import PeftConfig, PeftModel
    from transformers import (
        BitsAndBytesConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
        TrainerCallback,
    )


class UnorderedSetTrainer(RLOOTrainer):  # type: ignore[misc]  # trl is not checked
    r"""TRL's ``RLOOTrainer`` with the unordered set estimator in place of the leave-one-out mean.

    $$\nabla E[r] \approx \sum_s p_s R(S, s) \nabla \log p_s (r_s - b_s) \quad \text{for every prompt}$$

    :func:`sample_completions` replaces ``generate``, so that the ``num_generations`` completions of a
    prompt are all different. The weights and the baseline are those of :func:`swor.unordered_set`. Clipping,
    the KL penalty, saving and resuming are unchanged. With ``best_of=m`` in :class:`UnorderedSetConfig`, it
    trains for the best reward of $m$ completions instead of the mean reward, by :func:`swor.best_of`.

    In addition to TRL's metrics, the trainer logs means over prompts of :func:`swor.group_statistics`:
    ``swor/mass_covered``, ``swor/effective_sample_size``, ``swor/standard_error`` of the mean reward, and
    ``swor/duplicates_avoided``. It also logs ``swor/reward``, the unbiased estimate of the expected reward.
    TRL's ``reward``, the plain mean over distinct completions, is a biased one. With ``best_of=m`` there is
    also ``swor/best_of``, the unbiased estimate of the expected best reward of $m$ completions.

    Args:
        model: a causal language model, with an adapter or without, or its name.
        reward_funcs: one or several reward functions, as for ``RLOOTrainer``.
        args: the settings, an ``RLOOConfig`` or an :class:`UnorderedSetConfig`. Completions are sampled
            from the model's own distribution at ``temperature``, so ``top_p``, ``top_k``, ``min_p`` and
            ``repetition_penalty`` must have their defaults.
        train_dataset: the training data, with a column ``prompt``.
        eval_dataset: the evaluation data, with a column ``prompt``.
        processing_class: the tokenizer.
        reward_processing_classes: the tokenizers of reward models.
        callbacks: the callbacks of the training loop.
        optimizers: the optimizer and its learning rate schedule.
        quantization_config: how to quantise a model that is given by its name.
        peft_config: an adapter to train in place of the model, such as ``peft.LoraConfig``.

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043

        | Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human
        | Feedback in LLMs (Ahmadian et al., 2024)
        | https://arxiv.org/abs/2402.14740
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
            check_settings(args)
        options = {"quantization_config": quantization_config, "peft_config": peft_config}
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
            **accepted(RLOOTrainer.__init__, options),
        )
        check_attributes(self)
        self._best_of: int | None = getattr(self.args, "best_of", None)  # RLOOConfig has none

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: dict[str, Any]
    ) -> list[list[int]]:
        """Draw distinct completions of every group of equal prompts, and keep their sample."""
        if images or multimodal_fields:
            raise ValueError(
                "a prompt has images; expected text only, since sample_completions supports no images. "
                "Remove them from the dataset."
            )
        k = self.num_generations if self.model.training else self.num_generations_eval
        tokenizer: Any = getattr(self.processing_class, "tokenizer", self.processing_class)
        # Only newer versions of TRL end completions at all tokens that the model ends them at.
        ends = getattr(self, "eos_token_ids", None) or [tokenizer.eos_token_id]
        input_ids, mask = padded(one_of_each(prompt_ids, k), tokenizer.pad_token_id)
        with self._whole_model() as model, torch.no_grad():
            self._sample = sample_completions(
                model,
                input_ids.to(self.accelerator.device),
                mask.to(self.accelerator.device),
                k=k,
                max_new_tokens=self.max_completion_length,
                eos_token_id=ends,
                pad_token_id=tokenizer.pad_token_id,
                logits_processor=None if self.temperature == 1.0 else self._at_temperature,
            )
        return cut(self._sample.value.flatten(0, 1).tolist(), ends)

    @contextmanager
    def _whole_model(self) -> Iterator[PreTrainedModel]:
        """Provide the model without the wrappers of training, as TRL generates with it."""
        options = {
            "gather_deepspeed3_params": self.args.ds3_gather_for_generation,
            "gradient_checkpointing_kwargs": self.args.gradient_checkpointing_kwargs,
        }
        options = known(unwrap_model_for_generation, options)
        wrapped = self.model_wrapped
        with unwrap_model_for_generation(wrapped, self.accelerator, **options) as model:
            if isinstance(wrapped, FullyShardedDataParallel):  # the first FSDP
                with FullyShardedDataParallel.summon_full_params(wrapped, recurse=False):
                    yield model
            else:
                yield model

    def _at_temperature(self, tokens: Tensor, logits: Tensor) -> Tensor:
        return logits / float(self.temperature)

    def _calculate_rewards(
        self, inputs: Any, prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> Tensor:
        """Compute TRL's rewards, check that none is missing, and keep those of this process."""
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        if bool(rewards.isnan().all(-1).any()):
            raise ValueError(
                "every reward function returned None for a completion; expected at least one reward for "
                "each, since leaving out a completion would bias the estimate. Return a number."
            )
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(-1)
        first = self.accelerator.process_index * len(prompts)
        self._rewards = total[first : first + len(prompts)]
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Prepare TRL's batch, and replace the advantages."""
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        batch["advantages"] = self._weighted(batch["advantages"])
        logged = self._logs["advantages"]
        everyone = self.accelerator.gather(batch["advantages"]).tolist()
        for _ in range(min(len(everyone), len(logged))):
            logged.pop()
        logged.extend(everyone)
        self._log_groups()
        return batch

    def _weighted(self, advantages: Tensor) -> Tensor:
        """Return the advantages of the unordered set estimator, or of the best of m."""
        if self._best_of is None:
            return weighted(self._sample, advantages)
        reward = self._group_rewards()
        if self.reward_clip_range:
            reward = reward.clamp(*self.reward_clip_range)
        return best_of_weighted(self._sample, advantages, reward, self._best_of)

    def _group_rewards(self) -> Tensor:
        """Return the rewards of this process, (batch, k)."""
        rewards: Tensor = self._rewards.view(-1, self._sample.k)
        return rewards.to(self._sample.log_p.dtype)

    def _log_groups(self) -> None:
        reward = self._group_rewards()
        numbers = {"reward": unordered_set(self._sample).mean(reward)}
        if self._best_of is not None:
            numbers["best_of"] = best_of(self._sample, self._best_of).mean(reward)
        if self._sample.k > 1:
            numbers |= group_statistics(self._sample, reward)._asdict()
        mode = "train" if self.model.training else "eval"
        for name, number in numbers.items():
            mean = self.accelerator.gather(number).mean().item()
            self._metrics[mode][f"swor/{name}"].append(mean)
