"""Settings of TRL that would draw completions from another distribution, or in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trl import RLOOConfig

PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "use_transformers_continuous_batching": False,
    "use_transformers_paged": False,
}


def check_settings(args: RLOOConfig) -> None:
    """Completions are drawn from the model itself, at a temperature."""
    for name, value in PLAIN.items():
        given = getattr(args, name, value)  # some versions of TRL have it, some do not
        if given != value:
            raise ValueError(
                f"{name} is {given!r}; expected {value!r}: UnorderedSetTrainer samples from the model "
                "itself, with sample_completions. Leave it out."
            )
    if args.use_vllm:
        raise ValueError(
            "use_vllm is True; expected False: TRL asks vLLM for independent completions, and distinct "
            "ones need the probabilities of the next token at every step. Leave it out, and the "
            "model itself draws them; or train in a loop of your own with swor.integrations.vllm."
        )
