"""Distinct completions of prompts from a running engine, whose number need not be known in advance.

Every draw is one request per prompt to the engine, whose cache of prefixes avoids repeated computation.
A logits processor keeps the tree of all draws (:mod:`swor.samplers._tree`) and leaves them out, so that no
token is spent on a completion that was drawn before.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swor._checks import check_count, check_k
from swor.integrations.vllm._trees import Completion
from swor.integrations.vllm.engine import Prompt, check_engine, check_settings, own_pad_token_id
from swor.samplers._distinct import threshold, to_sample
from swor.samplers._tables import DistinctValues
from swor.types import Sample

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams


class DistinctCompletions:
    r"""Completions without replacement of every prompt, drawn from a vLLM engine some at a time.

    The engine has to be made with ``ENGINE``, which loads the logits processor::

        llm = vllm.LLM(model, **swor.integrations.vllm.ENGINE)
        with DistinctCompletions(llm, prompts, max_new_tokens=64) as completions:
            completions.draw(8)
            completions.draw(8)  # eight others
            sample = completions.sample()

    The weights of the model must not change between draws. Leaving the context, or :meth:`close`, makes
    the engine forget the trees.

    Args:
        llm: the engine.
        prompts: one or more, each a text or a list of token ids.
        max_new_tokens: the largest number of tokens of a completion.
        temperature: that the logits are divided by.
        top_k: the number of tokens that are possible in every step; None for all of them.
        stop_token_ids: tokens that end a completion, besides the model's own.
        pad_token_id: fills up completions that have ended; None for the model's own.
        generator: the source of randomness; None for the engine's own.

    Attributes:
        tokens: the number of tokens that the engine has generated.
    """

    def __init__(
        self,
        llm: LLM,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        stop_token_ids: Sequence[int] = (),
        pad_token_id: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        check_engine(llm)
        check_settings(prompts, max_new_tokens, temperature, top_k)
        self.llm, self.generator, self.max_new_tokens = llm, generator, max_new_tokens
        self.prompts = [p if isinstance(p, str) else {"prompt_token_ids": list(p)} for p in prompts]
        self.pad = own_pad_token_id(llm) if pad_token_id is None else pad_token_id
        self.stop_token_ids, self.tokens = list(stop_token_ids), 0
        self._settings = {"temperature": float(temperature), "top_k": top_k}
        self._names = [uuid.uuid4().hex for _ in prompts]
        self._value: list[Tensor] = []  # for every draw, (batch, max_new_tokens)
        self._log_p: list[Tensor] = []  # for every draw, (batch,)
        self._kappa: Tensor | None = None
        self.log_rest = torch.zeros(len(prompts), dtype=torch.float64)

    @property
    def k(self) -> int:
        """The number of completions of every prompt."""
        return len(self._value)

    def draw(self, n: int = 1) -> None:
        """Draw n more completions of every prompt.

        Args:
            n: the number of completions; an error if a prompt has fewer that were not drawn yet.
        """
        check_count("n", n)
        for _ in range(n):
            self._check_left()
            outputs = self.llm.generate(self.prompts, self._parameters(), use_tqdm=False)
            self._add([list(output.outputs[0].token_ids) for output in outputs])

    def sample(self) -> Sample:
        """Return all completions so far, in the order drawn.

        Returns:
            A sample whose ``value`` (batch, k, max_new_tokens) has token ids, without the prompt.
            ``log_p`` is under the distribution that was sampled from, with its temperature and top_k,
            and carries no gradient: give ``Weights.loss`` the log-probabilities of the model that is
            trained, for instance by :func:`swor.integrations.transformers.completion_log_probs`.
        """
        if not self._value:
            raise ValueError("there is no completion yet; expected at least one. Call draw first.")
        log_p = torch.stack(self._log_p, dim=-1)
        if self._kappa is None:
            self._kappa = threshold(log_p, self.log_rest, self.generator)
        value = torch.stack(self._value, dim=1)
        return to_sample(DistinctValues(value, log_p, self.log_rest, self._kappa), log_p.float())

    def close(self) -> None:
        """Make the engine forget the trees."""
        self.llm.collective_rpc("swor_forget", args=(self._names,))

    def __enter__(self) -> DistinctCompletions:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _parameters(self) -> list[SamplingParams]:
        """Return the parameters of one request per prompt."""
        from vllm import SamplingParams

        seeds: list[int | None] = [None] * len(self.prompts)
        if self.generator is not None:
            seeds = torch.randint(2**62, (len(seeds),), generator=self.generator).tolist()
        return [
            SamplingParams(
                max_tokens=self.max_new_tokens,
                seed=seed,
                stop_token_ids=self.stop_token_ids,
                detokenize=False,
                extra_args={"swor": {"tree": name, "draw": self.k, **self._settings}},
            )
            for name, seed in zip(self._names, seeds, strict=True)
        ]

    def _add(self, drawn: list[list[int]]) -> None:
        calls = [(name, self.k, t) for name, t in zip(self._names, drawn, strict=True)]
        completions = self._finish(calls)
        value = torch.full((len(drawn), self.max_new_tokens), self.pad, dtype=torch.long)
        for row, tokens in zip(value, drawn, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
            self.tokens += len(tokens)
        self._value.append(value)
        self._log_p.append(torch.tensor([c.log_p for c in completions], dtype=torch.float64))
        self.log_rest = torch.tensor([c.log_rest for c in completions], dtype=torch.float64)
        self._kappa = None

    def _finish(self, calls: list[tuple[str, int, list[int]]]) -> list[Completion]:
        """Return the completions from a worker that processed the logits."""
        answers = self.llm.collective_rpc("swor_finish", args=(calls,))
        seen = [answer for answer in answers if None not in answer]
        if not seen:
            raise RuntimeError(
                "no worker of the engine saw the logits of the requests; expected an engine made with "
                "LLM(model, **swor.integrations.vllm.ENGINE)."
            )
        return [Completion(*completion) for completion in seen[0]]

    def _check_left(self) -> None:
        exhausted = self.log_rest == -torch.inf
        if bool(exhausted.any()):
            raise ValueError(
                f"prompt {int(exhausted.long().argmax())} has only {self.k} different completions, and "
                "all of them were drawn; expected more of every prompt. Draw fewer, or give it to a "
                "DistinctCompletions of its own."
            )


def sample_completions(
    llm: LLM,
    prompts: Sequence[Prompt],
    *,
    k: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    stop_token_ids: Sequence[int] = (),
    pad_token_id: int | None = None,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Draw $k$ different completions of every prompt, a sample without replacement from a vLLM engine.

    Use it in place of :func:`swor.integrations.transformers.sample_completions` for a model that an engine
    serves. All other arguments are those of :class:`DistinctCompletions`.

    Returns:
        A sample as that of :meth:`DistinctCompletions.sample`.
    """
    check_k(k)
    with DistinctCompletions(
        llm,
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        stop_token_ids=stop_token_ids,
        pad_token_id=pad_token_id,
        generator=generator,
    ) as completions:
        completions.draw(k)
        return completions.sample()
