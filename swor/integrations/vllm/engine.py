"""What completions are drawn from: an engine, with the settings and checks of one, or a `vllm serve`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from swor._checks import check_count
from swor.integrations.vllm._rows import TAKEN, TEMPERATURE, TOP_K

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams

Prompt = str | Sequence[int]  # text, or token ids

PROCESSOR = "swor.integrations.vllm._processor:DistinctProcessor"
LOGPROBS = (
    "processed_logprobs"  # the log-probabilities of the distribution that tokens are drawn from
)
ENGINE: dict[str, Any] = {"logits_processors": [PROCESSOR], "logprobs_mode": LOGPROBS}
LOWEST_TEMPERATURE = 0.01  # vLLM replaces lower ones by this one
# All that change the distribution are sent: the server takes missing ones from the model's generation config.
SETTINGS = (
    *("n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "max_tokens", "seed", "stop_token_ids", "logprobs"),
)
TOKEN_IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}  # no tokenizer is needed


def check_engine(llm: LLM | Server) -> None:
    """Check that the engine has the processor, and generates one token at a time."""
    if isinstance(llm, Server):
        return  # it was checked when it was made
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


def own_pad_token_id(llm: LLM | Server) -> int:
    """Return the model's own token for padding; if it has none, the one that ends completions, or 0."""
    if isinstance(llm, Server):
        return llm.pad_token_id
    config = llm.llm_engine.vllm_config.model_config.hf_config
    for name in ("pad_token_id", "eos_token_id"):
        given = getattr(config, name, None)
        if isinstance(given, list):
            given = given[0]
        if given is not None:
            return int(given)
    return 0


class Server:
    r"""A server of a model, for :class:`DistinctCompletions` and :func:`sample_completions`.

    The server has to be started with the processor:

        vllm serve MODEL --logprobs-mode processed_logprobs \
            --logits-processors swor.integrations.vllm._processor:DistinctProcessor

    Args:
        url: of the server, such as "http://localhost:8000".
        pad_token_id: fills up completions that have ended.
        workers: the number of prompts whose requests wait for answers at the same time.
    """

    def __init__(self, url: str, *, pad_token_id: int = 0, workers: int = 64) -> None:
        self.url, self.workers, self.pad_token_id = url.rstrip("/"), workers, pad_token_id
        self.model = str(self._answer("/v1/models")["data"][0]["id"])
        self._check_processor()

    def _check_processor(self) -> None:
        """Check, by a probe of which the answer is known, that the server has our processor."""
        probe: dict[str, Any] = {"model": self.model, "prompt": [0], "max_tokens": 1, "logprobs": 2}
        probe |= TOKEN_IDS
        probe["vllm_xargs"] = {TAKEN: [], TEMPERATURE: 1.0, TOP_K: 0}
        (choice,) = self._answer("/v1/completions", probe)["choices"]
        found = sorted(choice["logprobs"]["top_logprobs"][0].values(), reverse=True)[:2]
        if not all(abs(log_p + math.log(2.0)) < 1e-3 for log_p in found):
            raise ValueError(
                f"the server at {self.url} answers a probe with the log-probabilities {found}; expected two "
                "of -log 2. Start it with --logprobs-mode processed_logprobs and --logits-processors "
                f"{PROCESSOR}."
            )

    def generate(
        self, prompts: Sequence[Any], parameters: Sequence[SamplingParams], use_tqdm: bool = False
    ) -> list[SimpleNamespace]:
        """Return the completions of every prompt, as an engine in the same process does."""
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(self._completions, prompts, parameters))

    def _completions(self, prompt: Any, parameters: SamplingParams) -> SimpleNamespace:
        request = {name: getattr(parameters, name) for name in SETTINGS}
        request |= {
            "model": self.model,
            "prompt": prompt if isinstance(prompt, str) else prompt["prompt_token_ids"],
            **TOKEN_IDS,
            "vllm_xargs": parameters.extra_args,
        }
        choices = self._answer("/v1/completions", request)["choices"]
        return SimpleNamespace(
            prompt_token_ids=choices[0]["prompt_token_ids"],
            outputs=[_output(choice, parameters.flat_logprobs) for choice in choices],
        )

    def _answer(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urlopen(request) as answer:
                parsed: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            raise ValueError(
                f"the server at {self.url} answers {path} with {error.code} {error.reason}: {said!r}; "
                "expected completions. Change the request as the server says, or start `vllm serve` with "
                f"--logits-processors {PROCESSOR}."
            ) from error
        except URLError as error:  # after HTTPError, which is one
            raise ConnectionError(
                f"no server answers at {self.url} ({error.reason}); expected an address such as "
                "'http://localhost:8000'. Start the server, or correct the address."
            ) from error
        return parsed


def _output(choice: dict[str, Any], flat: bool) -> SimpleNamespace:
    """Return a completion with log-probabilities in the form of the engine's own."""
    given = choice["logprobs"]
    logprobs: Any
    if flat:
        chosen = given["token_logprobs"]
        logprobs = SimpleNamespace(logprobs=chosen, start_indices=range(len(chosen)))
    else:
        logprobs = [
            {int(name.split(":")[1]): SimpleNamespace(logprob=p) for name, p in step.items()}
            for step in given["top_logprobs"]
        ]
    return SimpleNamespace(index=choice["index"], token_ids=choice["token_ids"], logprobs=logprobs)
