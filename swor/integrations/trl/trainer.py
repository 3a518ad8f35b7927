"""A trainer for TRL that uses distinct completions of every prompt and unbiased weights."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel
from trl import RLOOConfig, RLOOTrainer
from trl.models import unwrap_model_for_generation

from swor.integrations.transformers import sample_completions
from swor.integrations.transformers._prompts import Tokens, token_ids
from swor.integrations.trl._compatibility import (
    accepted,
    check_attributes,
    known,
    parameters,
    refuse_unknown,
)
from swor.integrations.trl._metrics import WeightedMetrics
from swor.integrations.trl._rewards import (
    advantage_moments,
    check_models,
    checked,
    deviation,
    group_advantages,
    group_rewards,
)
from swor.integrations.trl._sampling import (
    check_config,
    check_settings,
    check_sizes,
    check_text_only,
    filled,
    one_of_each,
    padded,
    processor_of,
)
from swor.integrations.trl._vllm import (
    distinct_engines,
    drawing_of,
    own_part,
    serve_distinct,
    shared_sample,
)
from swor.integrations.trl.config import goal_of
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


class UnorderedSetTrainer(WeightedMetrics):
    r"""TRL's ``RLOOTrainer`` with the unordered set estimator in place of the leave-one-out mean.

    $$\nabla E[r] \approx \sum_s p_s R(S, s) \nabla \log p_s (r_s - b_s) \quad \text{for every prompt}$$

    :func:`sample_completions` replaces ``generate``, so that the ``num_generations`` completions of a
    prompt are all different. The weights and the baseline are those of :func:`swor.unordered_set`. Clipping,
    the KL penalty, saving and resuming are unchanged. With ``best_of=m`` in :class:`UnorderedSetConfig`, it
    trains for the best reward of $m$ completions instead of the mean reward, by :func:`swor.best_of`.

    TRL's metrics (``reward``, ``rewards/*``, ``kl``, ``entropy``, ``completions/*``, ``clip_ratio/*_mean``)
    are unbiased estimates for the model, in which every completion has its weight, and not plain means over
    distinct completions. ``frac_reward_zero_std`` and those with ``min`` or ``max`` describe the completions
    that were drawn. In addition, the trainer logs means over prompts of :func:`swor.group_statistics`:
    ``swor/mass_covered``, ``swor/effective_sample_size``, ``swor/standard_error`` of the mean reward, and
    ``swor/duplicates_avoided``; the same estimate as ``reward`` under the name ``swor/reward``; and with
    ``best_of`` or ``log_success`` the estimate of this objective, ``swor/best_of`` or ``swor/log_success``.

    Args:
        model: a causal language model, with an adapter or without, or its name.
        reward_funcs: one or several reward functions, as for ``RLOOTrainer``.
        args: the settings, an :class:`UnorderedSetConfig` or an ``RLOOConfig``. With ``top_p``, ``top_k``,
            ``min_p`` and ``repetition_penalty``, completions and weights are those of the changed
            distribution, and the gradient is that of TRL: it differentiates the model itself.
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

    _name = "the unordered set estimator"
    _tag_names = ("trl", "rloo", "swor")
    _paper = {  # noqa: RUF012  # as in TRL
        "title": "Estimating Gradients for Discrete Random Variables by Sampling without Replacement",
        "id": "2002.06043",
        "citation": textwrap.dedent("""\
            @inproceedings{kool2020estimating,
                title     = {{Estimating Gradients for Discrete Random Variables
                             by Sampling without Replacement}},
                author    = {Wouter Kool and Herke van Hoof and Max Welling},
                year      = 2020,
                booktitle = {International Conference on Learning Representations},
            }"""),
    }

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
        check_config(args)
        if args is not None:
            check_settings(args)
        use_vllm = args is not None and args.use_vllm
        options = {"quantization_config": quantization_config, "peft_config": peft_config}
        with distinct_engines(use_vllm):
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
        if use_vllm:
            serve_distinct(self.vllm_generation)
        check_attributes(self)
        check_sizes(
            self.args.per_device_train_batch_size * self.args.steps_per_generation,
            self.num_generations,
            None if eval_dataset is None else self.args.per_device_eval_batch_size,
            self.num_generations_eval,
        )
        self._goal = goal_of(self.args)
        self._allow_fewer: bool = getattr(self.args, "allow_fewer", False)
        named = zip(vars(self)["reward_funcs"], self.reward_func_names, strict=True)
        self.reward_funcs = [checked(function, name) for function, name in named]

    def __new__(cls, *_: object, **given: Any) -> Self:
        """Refuse options that RLOO does not have, and say so."""
        refuse_unknown(cls, given, parameters(cls.__init__))
        new: Self = super().__new__(cls)
        return new

    # Completions.

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: dict[str, Any]
    ) -> list[list[int]]:
        """Draw distinct completions of every group of equal prompts, and keep their sample."""
        check_text_only(images, multimodal_fields)
        k = self.num_generations if self.model.training else self.num_generations_eval
        tokenizer: Any = getattr(self.processing_class, "tokenizer", self.processing_class)
        # Only newer versions of TRL end completions at all tokens that the model ends them at.
        ends = list(getattr(self, "eos_token_ids", None) or [tokenizer.eos_token_id])
        prompts, device = one_of_each(prompt_ids, k), self.accelerator.device
        if self.use_vllm:
            config = getattr(self.model, "generation_config", None)
            given = token_ids(getattr(config, "eos_token_id", None))
            ends += [end for end in given if end not in ends]  # the engine ends at these too
            drawing = drawing_of(self.vllm_generation)
            if drawing is not None:
                drawing.k, drawing.stop_token_ids, drawing.allow_fewer = k, ends, self._allow_fewer
            super()._generate_single_turn(prompt_ids, None, {})  # TRL loads the trained weights
            everyone = shared_sample(self.vllm_generation, drawing)
            self._sample = own_part(everyone, len(prompts), device)
        else:
            self._sample = self._drawn(prompts, k, ends, tokenizer.pad_token_id)
        value, pad = filled(self._sample).flatten(0, 1), tokenizer.pad_token_id
        self._lengths = Tokens(tuple(ends), pad).counted(value).sum(-1)
        last = value.gather(-1, self._lengths.unsqueeze(-1) - 1).squeeze(-1)
        self._truncated = ~torch.isin(last, torch.tensor([*ends, pad], device=device))
        return [c[:n] for c, n in zip(value.tolist(), self._lengths.tolist(), strict=True)]

    def _drawn(self, prompts: list[list[int]], k: int, ends: Sequence[int], pad: int) -> Sample:
        """Draw distinct completions from the model itself."""
        device = self.accelerator.device
        input_ids, mask = padded(prompts, pad)
        with self._whole_model() as model, torch.no_grad():
            return sample_completions(
                model,
                input_ids.to(device),
                mask.to(device),
                k=k,
                max_new_tokens=self.max_completion_length,
                eos_token_id=ends,
                pad_token_id=pad,
                logits_processor=processor_of(self.generation_config, device),
                allow_fewer=self._allow_fewer,
            )

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

    # Rewards and advantages.

    def _calculate_rewards(
        self, inputs: Any, prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> Tensor:
        """Compute TRL's rewards of all processes, check them, and keep them, (prompts, k, functions)."""
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids)
        check_models(rewards, self.reward_funcs, self.reward_func_names)
        self._rewards = group_rewards(rewards, self.reward_weights, self._sample.k)
        self._by_function = rewards.view(*self._rewards.shape, -1)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Prepare TRL's batch, and replace the advantages and the metrics."""
        self._scores.clear()
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        tokens = batch["completion_mask"]
        divergence = None
        if self.beta != 0.0:  # TRL scores the policy first, and the reference after it
            (policy, _), (reference, _) = self._scores
            divergence = ((policy - reference) * tokens).sum(-1).view_as(self._sample.log_p)
        batch["advantages"] = self._advantages(divergence).flatten().to(batch["advantages"].dtype)
        self._replace_logged(batch["advantages"])
        masked = tokens.sum(-1).view_as(self._sample.log_p)
        weight = self._log_groups(masked, divergence)
        batch["weights"], batch["token_weights"] = (w.flatten() for w in weight)
        return batch

    def _advantages(self, divergence: Tensor | None) -> Tensor:
        """Return the advantages of the completions of this process, (prompts, k)."""
        sample = self._sample
        reward = self._rewards[self._own].to(sample.log_p.dtype)
        penalty = torch.zeros_like(reward) if divergence is None else self.beta * divergence
        found = group_advantages(sample, reward, penalty.to(reward.dtype), self._goal)
        if self.normalize_advantages and sample.k > 1:
            moments = advantage_moments(sample, self._goal.clip(reward) - penalty)
            found = found / (deviation(self.accelerator.reduce(moments)) + 1e-4)
        return found
