r"""vLLM in the trainer: an engine or a server draws distinct completions where TRL asks for independent ones.

An engine takes the place of ``vllm.LLM`` while the trainer is made, so that TRL makes it, loads the trained
weights into it, and lets it sleep, as ever. For a server, the client of the main process is replaced: it
draws the completions of all processes, and the sample is sent to all of them.

The weights of completions come from the log-probabilities of the engine, for two reasons. The engine draws
the completions with them, and it computes the mass of all other completions as a sum of positive terms. The
log-probabilities of the trainer differ by rounding. With them, this mass would be $1 - \sum p$, of which
nothing is left if the policy is nearly certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast_object_list
from trl import RLOOConfig

from swor.integrations.trl._compatibility import parameters
from swor.types import Sample

if TYPE_CHECKING:
    from swor.integrations.vllm import Server

# Settings of TRL that are defined for a distribution from which nothing has been taken away.
PLAIN = {
    "top_p": 1.0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "vllm_structured_outputs_regex": None,
}


def check_vllm_settings(args: RLOOConfig) -> None:
    """Check that the engine can draw completions as the settings say."""
    if args.vllm_mode == "server" and not has_servers_of_vllm():
        raise ValueError(
            "vllm_mode is 'server'; expected 'colocate' with this version of TRL, whose server is one of its "
            "own, without logits processors. Install one that uses `vllm serve`, such as trl 1.16."
        )
    for name, usual in PLAIN.items():
        given = getattr(args, name, usual)
        if given != usual and given != {}:
            raise ValueError(
                f"{name} is {given!r} and use_vllm True; expected {usual!r}, since distinct completions from "
                "vLLM are drawn from the model itself at temperature and top_k. Leave it out, or leave out "
                "use_vllm."
            )


def has_servers_of_vllm() -> bool:
    """Return whether the servers of this version of TRL are those of vLLM itself."""
    from trl.generation.vllm_client import VLLMClient

    return "features" in parameters(VLLMClient.generate)


class Drawing:
    """An engine, or a client of a server, that draws distinct completions; the rest is that of TRL's own.

    Attributes:
        k: the number of completions of every prompt; this and the next two are set before any are drawn.
        stop_token_ids: that end completions, besides the model's own.
        allow_fewer: whether a prompt may have fewer than k completions.
        sample: the completions that were drawn last, of all prompts.
    """

    def __init__(self, own: Any, source: Any) -> None:
        self._own, self._source = own, source
        self.k, self.allow_fewer = 1, False
        self.stop_token_ids: Sequence[int] = ()
        self.sample: Sample | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "_own":  # a copy has no attributes yet
            raise AttributeError(name)
        return getattr(self._own, name)

    def draw(
        self, prompts: Sequence[list[int]], k: int, max_tokens: int, temperature: float, top_k: int
    ) -> list[list[int]]:
        """Draw k completions of every prompt, keep the sample, and return their tokens, (prompts · k)."""
        from swor.integrations.vllm import sample_completions

        self.sample = sample_completions(
            self._source,
            prompts,
            k=k,
            max_new_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k if top_k > 0 else None,
            stop_token_ids=self.stop_token_ids,
            allow_fewer=self.allow_fewer,
        )
        tokens: list[list[int]] = self.sample.value.flatten(0, 1).tolist()
        return tokens


class DistinctEngine(Drawing):
    """An engine for TRL whose ``generate`` draws distinct completions of every group of equal prompts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        from vllm import LLM

        from swor.integrations.vllm import ENGINE

        llm = LLM(*args, **ENGINE | options)
        super().__init__(llm, llm)

    def generate(
        self, prompts: Sequence[dict[str, Any]], sampling_params: Any, use_tqdm: bool = False
    ) -> list[SimpleNamespace]:
        """Return one output per prompt, as TRL reads it; the k outputs of equal prompts are distinct."""
        ids, given = [prompt["prompt_token_ids"] for prompt in prompts], sampling_params
        completions = self.draw(
            ids[:: self.k], self.k, given.max_tokens, given.temperature, given.top_k
        )
        return [
            SimpleNamespace(
                prompt_token_ids=prompt,
                outputs=[SimpleNamespace(token_ids=tokens, logprobs=None)],
            )
            for prompt, tokens in zip(ids, completions, strict=True)
        ]


class DistinctClient(Drawing):
    """A client of a server for TRL whose ``generate`` draws distinct completions.

    TRL's own client transfers the trained weights.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client, server_of(client))

    def generate(
        self,
        *,
        prompts: list[list[int]],
        n: int,
        max_tokens: int,
        temperature: float,
        top_k: int,
        **_: Any,
    ) -> dict[str, Any]:
        """Return n distinct completions of every prompt, as TRL reads them."""
        completions = self.draw(prompts, n, max_tokens, temperature, top_k)
        no_scores = dict.fromkeys(("logprobs", "logprob_token_ids"))
        return {"prompt_ids": prompts, "completion_ids": completions, **no_scores}


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


def server_of(client: Any) -> Server:
    """Return the server that a client is connected to; it is an error if it has no processor of ours."""
    from swor.integrations.vllm import Server

    return Server(client.base_url)


def serve_distinct(generation: Any) -> None:
    """Let TRL's client of a server, which the main process has, draw distinct completions."""
    client = getattr(generation, "vllm_client", None)
    if client is not None:
        generation.vllm_client = DistinctClient(client)


def drawing_of(generation: Any) -> Drawing | None:
    """Return what draws completions in this process; None if another one does."""
    server = generation.mode == "server"
    own: Drawing | None = getattr(generation, "vllm_client", None) if server else generation.llm
    return own


def shared_sample(generation: Any, drawing: Drawing | None) -> Sample:
    """Return what was drawn last: that of a server is sent to all processes."""
    sample = [None if drawing is None else drawing.sample]
    if generation.mode == "server":
        broadcast_object_list(sample)
    if sample[0] is None:
        raise RuntimeError(
            "the engine or server has drawn nothing; expected TRL to have asked it for completions. Leave "
            "TRL's _generate_single_turn as it is."
        )
    return sample[0]


def own_part(sample: Sample, prompts: int, device: Any) -> Sample:
    """Return the groups of this process, of those of all ranks of a tensor-parallel engine or a server."""
    first = 0
    if len(sample.log_p) > prompts:
        first = (torch.distributed.get_rank() * prompts) % len(sample.log_p)
    part = slice(first, first + prompts)
    rest = None if sample.log_rest is None else sample.log_rest[part].to(device)
    value, log_p = sample.value[part].to(device), sample.log_p[part].to(device)
    return Sample(value, log_p, rest, scheme=sample.scheme)
