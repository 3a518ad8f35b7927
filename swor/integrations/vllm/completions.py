"""Distinct completions of prompts from a running engine, whose number need not be known in advance.

They are drawn in rounds (:class:`swor.DistinctRounds`). The first round is an ordinary request for n
completions of every prompt. Requests of later rounds carry the tree of all draws with them, and a logits
processor leaves these draws out. So the engine keeps no state, and all requests of a round run in parallel.
With top_k, the processor truncates the logits of all rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from swor._checks import check_k
from swor.integrations.vllm._rows import NOTHING, TAKEN, TEMPERATURE, TOP_K, TREE
from swor.integrations.vllm._trees import Tree, encode
from swor.integrations.vllm.engine import (
    Prompt,
    Server,
    check_engine,
    check_settings,
    own_pad_token_id,
)
from swor.samplers.rounds import DistinctRounds
from swor.types import Sample

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput, SamplingParams

Tokens = tuple[int, ...]


class DistinctCompletions:
    r"""Completions without replacement of every prompt, drawn from a vLLM engine some at a time.

    The engine has to be made with ``ENGINE``, which loads the logits processor:

        llm = vllm.LLM(model, **swor.integrations.vllm.ENGINE)
        completions = DistinctCompletions(llm, prompts, max_new_tokens=64)
        completions.draw(8)
        completions.draw(8)  # eight others
        sample = completions.sample()

    The weights of the model must not change between draws.

    Args:
        llm: the engine, or a :class:`swor.integrations.vllm.Server`.
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

    tokens: int

    def __init__(
        self,
        llm: LLM | Server,
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
        self.temperature, self.top_k = float(temperature), top_k or 0
        self.pad = own_pad_token_id(llm) if pad_token_id is None else pad_token_id
        self.stop_token_ids, self.tokens = list(stop_token_ids), 0
        self._prompts: list[Any] = [
            p if isinstance(p, str) else {"prompt_token_ids": list(p)} for p in prompts
        ]
        self._trees = [Tree() for _ in prompts]
        self._drawn: DistinctRounds[Tokens] = DistinctRounds(
            self._round, len(prompts), log_rest=self._log_rest, generator=generator
        )

    @property
    def k(self) -> int:
        """The number of completions of every prompt."""
        return self._drawn.k

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._drawn.rounds

    @property
    def log_rest(self) -> Tensor:
        """The log of the mass of the completions that were not drawn, (batch,), in float64."""
        return self._drawn.log_rest

    @property
    def token_ids(self) -> list[list[Tokens]]:
        """The completions of every prompt in the order drawn, without padding."""
        return [list(row) for row in self._drawn.outcomes]

    def draw(self, n: int = 1, *, allow_fewer: bool = False) -> None:
        """Draw n more completions of every prompt.

        Args:
            n: the number of completions. It is an error if a prompt has fewer left.
            allow_fewer: whether a prompt may have fewer left. All of them are then drawn, and
                :meth:`sample` fills the places that are left over with padding and the log-probability −inf.
        """
        self._drawn.draw(n, allow_fewer=allow_fewer)

    def sample(self) -> Sample:
        """Return all completions so far, in the order drawn.

        Returns:
            A sample whose ``value`` (batch, k, max_new_tokens) has token ids, without the prompt.
            ``log_p`` is under the distribution that was sampled from, with its temperature and top_k,
            and carries no gradient: give ``Weights.loss`` the log-probabilities of the model that is
            trained, for instance by :func:`swor.integrations.transformers.completion_log_probs`.
        """
        sample = self._drawn.sample()
        value = torch.full((*sample.log_p.shape, self.max_new_tokens), self.pad)
        for row, completions in zip(value, self._drawn.outcomes, strict=True):
            for place, tokens in zip(row, completions, strict=False):
                place[: len(tokens)] = torch.tensor(tokens)
        return dataclasses.replace(sample, value=value)

    def _round(
        self, missing: Sequence[int], drawn: Sequence[Sequence[Tokens]]
    ) -> list[list[tuple[Tokens, float]]]:
        """Draw as many completions as are missing, at once, from what is left of every prompt."""
        chosen = [i for i, m in enumerate(missing) if m > 0]
        outputs: list[RequestOutput] = self.llm.generate(
            [self._prompts[i] for i in chosen],
            [self._parameters(i, missing[i]) for i in chosen],
            use_tqdm=False,
        )
        pairs: list[list[tuple[Tokens, float]]] = [[] for _ in missing]
        for i, output in zip(chosen, outputs, strict=True):
            self._prompts[i] = {"prompt_token_ids": list(output.prompt_token_ids)}
            found = sorted(output.outputs, key=lambda completion: completion.index)
            draws = [(tuple(x.token_ids), _chosen_log_probs(x.logprobs)) for x in found]
            self.tokens += sum(len(tokens) for tokens, _ in draws)
            log_p = self._trees[i].add(draws)
            pairs[i] = [(tokens, p) for (tokens, _), p in zip(draws, log_p, strict=True)]
        return pairs

    def _log_rest(self, drawn: Sequence[Sequence[Tokens]]) -> list[float]:
        """Return what is left of every prompt, after measurements where the trees are imprecise."""
        while places := [
            (i, prefix) for i, tree in enumerate(self._trees) for prefix in tree.imprecise()
        ]:
            prompts = [self._prompts[i]["prompt_token_ids"] + list(prefix) for i, prefix in places]
            outputs = self.llm.generate(
                [{"prompt_token_ids": prompt} for prompt in prompts],
                [self._probe(self._trees[i].taken(prefix)) for i, prefix in places],
                use_tqdm=False,
            )
            for (i, prefix), output in zip(places, outputs, strict=True):
                answer = output.outputs[0].logprobs[0]
                log_new = answer[1].logprob - answer[0].logprob
                self._trees[i].set_new(prefix, log_new if log_new > NOTHING else -torch.inf)
        return [tree.log_rest for tree in self._trees]

    def _parameters(self, i: int, n: int) -> SamplingParams:
        """Return the parameters of a request for n completions of a prompt, from what is left of it."""
        from vllm import SamplingParams

        seed, tree = None, self._trees[i]
        changed = self.top_k > 0 or len(tree.root.children) > 0
        if self.generator is not None:
            seed = int(torch.randint(2**62, (), generator=self.generator))
        return SamplingParams(
            n=n,
            temperature=self.temperature,
            top_k=0,  # the processor's
            max_tokens=self.max_new_tokens,
            seed=seed,
            stop_token_ids=self.stop_token_ids,
            detokenize=False,
            logprobs=0,
            flat_logprobs=True,
            extra_args={TREE: encode(tree), TOP_K: self.top_k} if changed else None,
        )

    def _probe(self, taken: Sequence[int]) -> SamplingParams:
        """Return the parameters of a request that measures the mass of all other tokens."""
        from vllm import SamplingParams

        settings = {TEMPERATURE: self.temperature, TOP_K: self.top_k}
        return SamplingParams(
            max_tokens=1,
            detokenize=False,
            logprobs=2,
            extra_args={TAKEN: list(taken), **settings},
        )


def _chosen_log_probs(given: Any) -> list[float]:
    """Return the log-probabilities of the tokens that were drawn, which come first of those of a step."""
    return [given.logprobs[start] for start in given.start_indices]


def sample_completions(
    llm: LLM | Server,
    prompts: Sequence[Prompt],
    *,
    k: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    stop_token_ids: Sequence[int] = (),
    pad_token_id: int | None = None,
    allow_fewer: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Draw $k$ different completions of every prompt, a sample without replacement from a vLLM engine.

    Use it in place of :func:`swor.integrations.transformers.sample_completions` for a model that an engine
    serves. All other arguments are those of :class:`DistinctCompletions` and of its ``draw``.

    Returns:
        A sample, as ``DistinctCompletions.sample`` returns it.
    """
    check_k(k)
    completions = DistinctCompletions(
        llm,
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        stop_token_ids=stop_token_ids,
        pad_token_id=pad_token_id,
        generator=generator,
    )
    completions.draw(k, allow_fewer=allow_fewer)
    return completions.sample()
