"""How completions are drawn: which settings are honoured, the prompts before, and the completions after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    EpsilonLogitsWarper,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from trl import RLOOConfig

from swor.integrations.trl._vllm import check_vllm_settings
from swor.types import Sample

if TYPE_CHECKING:
    from transformers import GenerationConfig

# In the order of generate: the name of a setting, the values that change nothing, and what applies it.
HONOURED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "repetition_penalty": ((None, 1.0), RepetitionPenaltyLogitsProcessor),
    "no_repeat_ngram_size": ((None, 0), NoRepeatNGramLogitsProcessor),
    "suppress_tokens": ((None,), SuppressTokensLogitsProcessor),
    "temperature": ((None, 1.0), TemperatureLogitsWarper),
    "top_k": ((None, 0), TopKLogitsWarper),
    "top_p": ((None, 1.0), TopPLogitsWarper),
    "min_p": ((None,), MinPLogitsWarper),
    "typical_p": ((None, 1.0), TypicalLogitsWarper),
    "epsilon_cutoff": ((None, 0.0), EpsilonLogitsWarper),
}
# Settings of generate that are fine if they ask for what happens anyway.
USUAL = {"do_sample": True, "num_beams": 1, "num_return_sequences": 1, "use_cache": True}
OTHER_ENGINE = (
    "completions are drawn by a stochastic beam search, in which the completions of a prompt depend on one "
    "another and share a cache of their own"
)
CONTINUOUS_BATCHING = (
    "its logits processors do not see what a request has generated, so that it can only draw independently, "
    "and a group with duplicates would need the stochastic beam search as well"
)
REFUSED = {
    "use_transformers_continuous_batching": (False, CONTINUOUS_BATCHING),
    "use_transformers_paged": (False, CONTINUOUS_BATCHING),
    "cache_implementation": (None, OTHER_ENGINE),
}


def check_config(args: object) -> None:
    """Check that the settings are those of RLOO."""
    if args is not None and not isinstance(args, RLOOConfig):
        raise TypeError(
            f"args is a {type(args).__name__}; expected an UnorderedSetConfig or an RLOOConfig. Copy the "
            "settings that RLOO has to UnorderedSetConfig; it has no loss_type, importance_sampling_level, "
            "scale_rewards or tools, since the unordered set estimator takes the place of GRPO's loss."
        )


def check_settings(args: RLOOConfig) -> None:
    """Check that completions can be drawn as the settings say."""
    for name, (usual, reason) in REFUSED.items():
        given = getattr(args, name, usual)  # some versions of TRL have it, some do not
        if given != usual:
            raise ValueError(f"{name} is {given!r}; expected {usual!r}: {reason}. Leave it out.")
    if not args.temperature > 0.0:
        raise ValueError(
            f"temperature is {args.temperature}; expected more than 0, since distinct completions are drawn "
            "at random. Choose a low temperature for completions that are nearly greedy."
        )
    if args.use_vllm:
        check_vllm_settings(args)
    for name, given in (args.generation_kwargs or {}).items():
        if name not in HONOURED and (name not in USUAL or given != USUAL[name]):
            raise ValueError(
                f"generation_kwargs has {name}={given!r}; expected only {', '.join(HONOURED)}, which change "
                f"the distribution of the next token: {OTHER_ENGINE}. Leave it out."
            )


def check_sizes(train: int, k: int, evaluation: int | None, k_eval: int) -> None:
    """Check that all completions of a prompt are on one process, and in one batch."""
    names = {
        "per_device_train_batch_size · steps_per_generation": (train, "num_generations", k),
        "per_device_eval_batch_size": (evaluation, "num_generations_eval", k_eval),
    }
    for name, (size, of, count) in names.items():
        if size is not None and size % count:
            raise ValueError(
                f"{name} is {size} and {of} {count}; expected a multiple of {count}, since all completions "
                f"of a prompt are drawn together, on one process. Make it {-(-size // count) * count}."
            )


def processor_of(config: GenerationConfig, device: Any) -> LogitsProcessorList | None:
    """Return what changes the distribution of the next token, as ``generate`` would; None if nothing does."""
    processors = LogitsProcessorList()
    for name, (neutral, make) in HONOURED.items():
        given = getattr(config, name, None)
        if given not in neutral:
            options = {"device": device} if make is SuppressTokensLogitsProcessor else {}
            processors.append(make(given, **options))
    return processors or None


def check_text_only(images: Any, fields: dict[str, Any]) -> None:
    """Check that no prompt has an image; a vision-language model then reads text as any other model does."""
    types = [name for name in fields if name.endswith("token_type_ids")]  # all 0 for text
    others = [name for name in fields if name not in types]
    if others or any(any(row) for name in types for row in fields[name]) or any(images or []):
        raise ValueError(
            "a prompt has images; expected text only, since sample_completions supports no images. "
            "Remove them from the dataset."
        )


def one_of_each(prompts: Sequence[list[int]], k: int) -> list[list[int]]:
    """Return one prompt of each group of k equal ones.

    >>> one_of_each([[1, 2], [1, 2], [3], [3]], 2)
    [[1, 2], [3]]
    """
    groups = [prompts[i : i + k] for i in range(0, len(prompts), k)]
    if any(len(group) < k or any(prompt != group[0] for prompt in group) for group in groups):
        raise ValueError(
            f"the {len(prompts)} prompts of this process are not groups of {k} equal ones; expected "
            "all completions of a prompt on one process. Leave the order of the prompts to the trainer."
        )
    return [group[0] for group in groups]


def filled(sample: Sample) -> Tensor:
    """Return the completions (batch, k, n), with the first of a group in places that have none.

    A prompt may have fewer than k completions. The places that are left over have weight 0, and reward
    functions still get a real completion to look at.
    """
    return torch.where((sample.log_p > -torch.inf).unsqueeze(-1), sample.value, sample.value[:, :1])


def padded(prompts: Sequence[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Return prompts (batch, tokens), padded on the left, and their attention mask.

    >>> padded([[5, 6], [7]], 0)
    (tensor([[5, 6],
            [0, 7]]), tensor([[1, 1],
            [0, 1]]))
    """
    ids = [torch.tensor(prompt) for prompt in prompts]
    mask = [torch.ones_like(x) for x in ids]
    return (
        pad_sequence(ids, True, pad, padding_side="left"),
        pad_sequence(mask, True, 0, padding_side="left"),
    )
