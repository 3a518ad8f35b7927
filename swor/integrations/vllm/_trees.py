"""The trees of the completions that were drawn, which outlive the requests to the engine.

A request is one draw from the tree of its prompt. At each step the engine passes the logits of the next
token, and the request returns the log of the remaining mass of every token. The engine passes the sampled
token with the next step. The last token of a completion has no next step, so the caller passes it to
``finish``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from swor.samplers._tree import Node, Step, use_up


class Completion(NamedTuple):
    """A completion that was drawn."""

    log_p: float
    log_rest: float  # log of the mass that is left of its prompt's completions


@dataclass
class Request:
    """A completion that is being drawn.

    Attributes:
        root: of the tree of its prompt.
        temperature: that the logits are divided by.
        top_k: the number of tokens that are possible in every step; None for all of them.
    """

    root: Node
    temperature: float
    top_k: int | None
    steps: list[Step] = field(default_factory=list)
    log_left: Tensor | None = None  # of all tokens in the step that has no token yet, (symbols,)

    def process(self, count: int, last: int, logits: Tensor) -> Tensor:
        """Return the logits of the next token, given that the completion was not drawn before.

        Args:
            count: the number of tokens so far.
            last: the last of them; anything if there are none.
            logits: of the model, (symbols,).
        """
        self._follow(count, last)
        self.log_left = self._node().log_left(self._log_probs(logits)).to(logits.dtype)
        return self.log_left

    def finish(self, tokens: list[int]) -> float:
        """Mark the completion as drawn, and return its log-probability."""
        self._follow(len(tokens), tokens[-1])
        use_up(self.steps, self._node())
        return sum(step.log_p for step in self.steps)

    def _node(self) -> Node:
        return self.steps[-1].child if self.steps else self.root

    def _log_probs(self, logits: Tensor) -> Tensor:
        """Return log-probabilities in double precision, so that those near 0 keep their digits."""
        logits = logits.double() / self.temperature
        if self.top_k is not None and self.top_k < len(logits):
            kept = logits.topk(self.top_k)
            logits = torch.full_like(logits, -torch.inf).scatter(0, kept.indices, kept.values)
        return logits.log_softmax(-1)

    def _follow(self, count: int, last: int) -> None:
        """Take the step to the last token, unless it was taken; an engine may repeat steps."""
        del self.steps[count:]
        if count == len(self.steps):
            return
        if self.log_left is None or count > len(self.steps) + 1:
            raise RuntimeError(
                f"the engine generated {count} tokens of a completion and showed the logits of "
                f"{len(self.steps)}; expected one token for every step. Turn off what makes several "
                "tokens at a time, such as speculative decoding."
            )
        self.steps.append(self._step(last))

    def _step(self, token: int) -> Step:
        node, log_left = self._node(), self.log_left
        if log_left is None or log_left[token] == -torch.inf:
            raise RuntimeError(
                f"the engine chose token {token}, all completions with which were drawn before; "
                "expected it to sample from the logits that it was given."
            )
        child = node.children.setdefault(token, Node())
        others = log_left.double()
        log_p = float(others[token]) - child.log_rest
        others[token] = -torch.inf
        return Step(node, child, log_p, float(others.logsumexp(0)))


class Trees:
    """All trees, by their names."""

    def __init__(self) -> None:
        self.roots: dict[str, Node] = {}
        self.requests: dict[str, Request] = {}

    def request(self, settings: dict[str, Any]) -> Request:
        """Return the request that the settings describe: a new one, or the one that is resumed."""
        name, draw = settings["tree"], settings["draw"]
        key = f"{name}/{draw}"
        if key not in self.requests:
            root = self.roots.setdefault(name, Node())
            self.requests[key] = Request(root, settings["temperature"], settings["top_k"])
        return self.requests[key]

    def finish(self, name: str, draw: int, tokens: list[int]) -> Completion | None:
        """Return the completion that a request has drawn; None if another worker processed its logits."""
        request = self.requests.pop(f"{name}/{draw}", None)
        if request is None or request.log_left is None:
            return None
        log_p = request.finish(tokens)
        return Completion(log_p, request.root.log_rest)

    def forget(self, names: list[str]) -> None:
        """Drop trees, and requests that did not finish."""
        for name in names:
            self.roots.pop(name, None)
            for key in [key for key in self.requests if key.startswith(f"{name}/")]:
                del self.requests[key]


TREES = Trees()  # one object per process, because the engine makes the objects that use it
