"""The settings that an engine must be made with, and checks of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from swor._checks import check_count

if TYPE_CHECKING:
    from vllm import LLM

Prompt = str | Sequence[int]  # text, or token ids

PROCESSOR = "swor.integrations.vllm._processor:DistinctProcessor"
LOGPROBS = (
    "processed_logprobs"  # the log-probabilities of the distribution that tokens are drawn from
)
ENGINE: dict[str, Any] = {"logits_processors": [PROCESSOR], "logprobs_mode": LOGPROBS}
LOWEST_TEMPERATURE = 0.01  # vLLM replaces lower ones by this one


def check_engine(llm: LLM) -> None:
    """Check that the engine has the processor, and generates one token at a time."""
    config = llm.llm_engine.vllm_config
    model = config.model_config
    if PROCESSOR not in (model.logits_processors or ()) or model.logprobs_mode != LOGPROBS:
        raise ValueError(
            f"the engine has the logits processors {model.logits_processors} and returns "
            f"{model.logprobs_mode}; expected swor's processor and {LOGPROBS}. Make it with "
            "LLM(model, **swor.integrations.vllm.ENGINE)."
        )
    if config.speculative_config is not None:
        raise ValueError(
            "the engine uses speculative decoding, which accepts tokens by the logits of another "
            "model; expected none. Leave out speculative_config."
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
    if not temperature >= LOWEST_TEMPERATURE:
        raise ValueError(
            f"temperature is {temperature}; expected at least {LOWEST_TEMPERATURE}, the lowest that vLLM "
            "samples at. There is only one greedy completion."
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
