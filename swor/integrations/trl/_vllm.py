r"""vLLM inside of the trainer: an engine that draws distinct completions where TRL asks for independent ones.

The engine takes the place of ``vllm.LLM`` while the trainer is made, so that TRL makes it, loads the trained
weights into it, and lets it sleep, as ever. The weights of completions come from the log-probabilities of the
engine, since these are the law of the draws, and since the mass outside is a sum there: with those of the
trainer, which differ by rounding, it would be $1 - \sum p$, of which nothing is left if the policy is sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from trl import RLOOConfig

from swor.types import Sample

# Settings of TRL that are defined for a distribution from which nothing has been taken away.
PLAIN = {
    "top_p": 1.0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "vllm_structured_outputs_regex": None,
    "vllm_mode": "colocate",
}


def check_vllm_settings(args: RLOOConfig) -> None:
    """Check that the engine can draw completions as the settings say."""
    for name, usual in PLAIN.items():
        given = getattr(args, name, usual)
        if given != usual and given != {}:
            raise ValueError(
                f"{name} is {given!r} and use_vllm True; expected {usual!r}, since distinct completions from "
                "vLLM are drawn by an engine in the same process, from the model itself at temperature and "
                "top_k. Leave it out, or leave out use_vllm."
            )


def generation_ends(model: Any) -> list[int]:
    """Return the tokens of the model's generation config that end completions, which an engine respects."""
    given = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return (
        []
        if given is None
        else [int(end) for end in given]
        if isinstance(given, list)
        else [int(given)]
    )


class DistinctEngine:
    """An engine for TRL whose ``generate`` draws distinct completions of every group of equal prompts.

    Everything else is that of ``vllm.LLM``, which it is made with.

    Attributes:
        k: the number of completions of every prompt, to be set before they are drawn.
        stop_token_ids: that end completions, besides the model's own.
        allow_fewer: whether a prompt may have fewer than k completions.
        sample: the completions that were drawn last, of all prompts of the engine.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        from vllm import LLM

        from swor.integrations.vllm import ENGINE

        self._llm: Any = LLM(*args, **ENGINE | options)
        self.k, self.allow_fewer = 1, False
        self.stop_token_ids: Sequence[int] = ()
        self.sample: Sample | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def generate(
        self, prompts: Sequence[dict[str, Any]], sampling_params: Any, use_tqdm: bool = False
    ) -> list[SimpleNamespace]:
        """Return one output per prompt, as TRL reads it; the k outputs of equal prompts are distinct."""
        from swor.integrations.vllm import sample_completions

        ids = [prompt["prompt_token_ids"] for prompt in prompts]
        self.sample = sample_completions(
            self._llm,
            ids[:: self.k],
            k=self.k,
            max_new_tokens=sampling_params.max_tokens,
            temperature=sampling_params.temperature,
            top_k=sampling_params.top_k or None,
            stop_token_ids=self.stop_token_ids,
            allow_fewer=self.allow_fewer,
        )
        completions = self.sample.value.flatten(0, 1).tolist()
        return [
            SimpleNamespace(
                prompt_token_ids=prompt,
                outputs=[SimpleNamespace(token_ids=tokens, logprobs=None)],
            )
            for prompt, tokens in zip(ids, completions, strict=True)
        ]


@contextmanager
def distinct_engines(wanted: bool) -> Iterator[None]:
    """Let TRL make engines of distinct completions in this context, if it is wanted."""
    if not wanted:
        yield
        return
    from trl.generation import vllm_generation as maker

    own: Any = getattr(maker, "LLM", None)  # none without vLLM, which TRL reports
    maker.LLM = DistinctEngine
    try:
        yield
    finally:
        maker.LLM = own


def own_part(engine: DistinctEngine, prompts: int, device: Any) -> Sample:
    """Return the groups of this process: ranks of a tensor-parallel engine draw those of all of them."""
    sample, first = engine.sample, 0
    if sample is None:
        raise RuntimeError(
            "the engine has drawn nothing; expected TRL to have asked it for completions."
        )
    if len(sample.log_p) > prompts:
        first = (torch.distributed.get_rank() * prompts) % len(sample.log_p)
    part = slice(first, first + prompts)
    rest = None if sample.log_rest is None else sample.log_rest[part].to(device)
    value, log_p = sample.value[part].to(device), sample.log_p[part].to(device)
    return Sample(value, log_p, rest, scheme=sample.scheme)
