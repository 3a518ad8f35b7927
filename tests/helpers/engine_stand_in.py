"""An engine with vLLM's interface and swor's processor, for a model that is a table of logits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from problems import seeded
from tabular_language_model import END

from swor.integrations.vllm import ENGINE
from swor.integrations.vllm._rows import Walk, keep_top_k, process, request_of


@dataclass
class SamplingParams:
    """The parameters that our requests set."""

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    max_tokens: int = 16
    seed: int | None = None
    stop_token_ids: list[int] = field(default_factory=list)
    detokenize: bool = True
    logprobs: int | None = None
    flat_logprobs: bool = False
    extra_args: dict[str, Any] | None = None


class Engine:
    """Draws all requests of a call beside each other; its log-probabilities are in single precision.

    Attributes:
        steps: the number of steps so far.
        touched: the number of rows that the processor has changed.
        calls: for every call, the numbers of completions asked for.
    """

    def __init__(self, logits, seed=0, processors=True, end=END):
        self.logits, self.generator, self.processors = logits, seeded(seed), processors
        self.end = end
        self.steps = self.touched = 0
        self.calls: list[list[int]] = []
        model = SimpleNamespace(
            logits_processors=ENGINE["logits_processors"],
            logprobs_mode=ENGINE["logprobs_mode"],
            hf_config=SimpleNamespace(pad_token_id=None, eos_token_id=end),
        )
        config = SimpleNamespace(model_config=model, speculative_config=None)
        self.llm_engine = SimpleNamespace(vllm_config=config)

    def generate(self, prompts, parameters, use_tqdm=True):
        self.calls.append([p.n for p in parameters])
        running = [
            _Running(prompt["prompt_token_ids"], p, self.end)
            for prompt, p in zip(prompts, parameters, strict=True)
            for _ in range(p.n)
        ]
        self._run(running)
        answers = iter(running)
        return [
            SimpleNamespace(
                prompt_token_ids=prompt["prompt_token_ids"],
                outputs=[next(answers).output(i) for i in range(p.n)],
            )
            for prompt, p in zip(prompts, parameters, strict=True)
        ]

    def _run(self, running):
        while active := [x for x in running if not x.ended]:
            rows = torch.stack(
                [self.logits(x.prompt[0], [*x.prompt[1:], *x.tokens]) for x in active]
            ).float()
            if self.processors:
                ours = [(i, x.request) for i, x in enumerate(active) if x.is_ours()]
                process(rows, ours)
                self.touched += len(ours)
            rows = rows / torch.tensor([[x.parameters.temperature] for x in active])
            rows = keep_top_k(rows, [x.parameters.top_k for x in active])
            log_probs = rows.log_softmax(-1)
            drawn = log_probs.double().softmax(-1).multinomial(1, generator=self.generator)
            for x, token, row in zip(active, drawn.flatten().tolist(), log_probs, strict=True):
                x.add(token, row)
            self.steps += 1


class _Running:
    def __init__(self, prompt, parameters, end):
        self.prompt, self.parameters, self.end = tuple(prompt), parameters, end
        self.tokens: list[int] = []
        self.log_probs: list[torch.Tensor] = []
        self.request = request_of(parameters.extra_args, parameters.temperature)
        self.ended = False

    def is_ours(self):
        if not isinstance(self.request, Walk):
            return self.request is not None
        return self.request.follow(self.tokens[self.request.length :])

    def add(self, token, row):
        self.tokens.append(token)
        self.log_probs.append(row)
        ends = token in (self.end, *self.parameters.stop_token_ids)
        self.ended = ends or len(self.tokens) == self.parameters.max_tokens

    def output(self, index):
        chosen = [float(row[t]) for row, t in zip(self.log_probs, self.tokens, strict=True)]
        assert all(x > -math.inf for x in chosen)
        if self.parameters.flat_logprobs:
            given = SimpleNamespace(logprobs=chosen, start_indices=list(range(len(chosen))))
        else:
            given = [
                {i: SimpleNamespace(logprob=float(row[i])) for i in range(2)}
                for row in self.log_probs
            ]
        return SimpleNamespace(index=index, token_ids=list(self.tokens), logprobs=given)
