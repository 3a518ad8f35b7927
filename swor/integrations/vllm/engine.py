"""The settings that an engine must be made with, and checks of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swor._checks import check_count

if TYPE_CHECKING:
    from vllm import LLM

Prompt = str | Sequence[int]  # text, or token ids

PROCESSOR = "swor.integrations.vllm._processor:DistinctProcessor"
WORKER = "swor.integrations.vllm._processor.TreeWorker"
ENGINE: dict[str, Any] = {"logits_processors": [PROCESSOR], "worker_extension_cls": WORKER}


def check_engine(llm: LLM) -> None:
    """Check that the engine has the processor, and generates one token at a time in one place."""
    config = llm.llm_engine.vllm_config
    processors = config.model_config.logits_processors or ()
    if PROCESSOR not in processors or not config.parallel_config.worker_extension_cls:
        raise ValueError(
            "the engine was made without swor's logits processor and calls to workers; expected "
            "LLM(model, **swor.integrations.vllm.ENGINE)."
        )
    if config.speculative_config is not None:
        raise ValueError(
            "the engine uses speculative decoding, which accepts tokens by the logits of another "
            "model; expected none. Leave out speculative_config."
        )
    replicas = config.parallel_config.data_parallel_size
    if replicas != 1:
        raise ValueError(
            f"the engine has {replicas} replicas of the model, and requests of one prompt may reach "
            "any of them; expected data_parallel_size=1. Use one engine for each part of the prompts."
        )


def check_settings(
    prompts: Sequence[Prompt], max_new_tokens: int, temperature: float, top_k: int | None
) -> None:
    """Check that there are prompts, and that the settings define a distribution."""
    if isinstance(prompts, str) or len(prompts) == 0:
        raise ValueError(
            f"prompts is {prompts!r}; expected a list of one or more, each a text or token ids."
        )
    check_count("max_new_tokens", max_new_tokens)
    if not temperature > 0.0:
        raise ValueError(
            f"temperature is {temperature}; expected more than 0. There is only one greedy completion."
        )
    if top_k is not None:
        check_count("top_k", top_k)


def own_pad_token_id(llm: LLM) -> int:
    """Return the model's own token for padding; if it has none, the one that ends completions, or 0."""
    config = llm.llm_engine.vllm_config.model_config.hf_config
    for name in ("pad_token_id", "eos_token_id"):
        given = getattr(config, name, None)
        if isinstance(given, list):
            given = given[0]
        if given is not None:
            return int(given)
    return 0
