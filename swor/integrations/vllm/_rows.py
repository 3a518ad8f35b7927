r"""What the engine's processor does to the logits of a step, for all its requests at once.

A :class:`Walk` is a draw from what is left: token $c$ after prefix $v$ has the mass
$p(c \mid v) (1 - \varphi(c))$, so that its logit changes by $\log(1 - \varphi(c))$. This is 0 if no draw
has taken the token. With top_k, the model's own logits say which tokens are possible, and the processor alone
leaves out the others: the engine would compare the changed logits, and leave out too many where several are
equal to the smallest that is kept.

A :class:`Probe` measures the mass of the tokens that no draw has taken after a prefix. The engine returns
log-probabilities alone: the mass is the log-probability of token 1 minus that of token 0, and no other token
is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from swor.integrations.vllm._trees import Received, decode

TREE, TAKEN, TEMPERATURE, TOP_K = "swor_tree", "swor_taken", "swor_temperature", "swor_top_k"
"""The extra arguments of requests: strings, numbers and lists, which every server of vLLM accepts."""
NOTHING = -9999.0  # the smallest log-probability that a server returns; it stands for −inf


@dataclass
class Walk:
    """A completion that is being drawn."""

    tree: Received  # the completions that are left out
    temperature: float  # that the engine divides the logits by later
    top_k: int  # the number of possible tokens, 0 for all of them; the engine's own has to be off
    node: int | None = 0  # the prefix that was reached; None after a token that no draw has taken
    length: int = 0  # the number of its tokens

    def follow(self, tokens: Sequence[int]) -> bool:
        """Go to the prefix with these further tokens, and return whether its logits have to change."""
        for token in tokens:
            if self.node is not None:
                self.node = self.tree.child(self.node, token)
            self.length += 1
        return self.top_k > 0 or len(self.children()) > 0

    def children(self) -> range:
        """Return the nodes after the tokens that were taken at this prefix."""
        return range(0) if self.node is None else self.tree.children(self.node)


@dataclass
class Probe:
    """A measurement of the mass of new tokens after a prefix, by a request for one token."""

    taken: list[int]  # the tokens that draws have taken
    temperature: float  # that the logits are divided by
    top_k: int  # the number of tokens that are possible, 0 for all of them

    def row(self, logits: Tensor) -> Tensor:
        """Return logits whose difference between tokens 1 and 0 is the log of the mass, (symbols,)."""
        kept = keep_top_k(logits.double().unsqueeze(0), [self.top_k])[0]
        log_probs = (kept / self.temperature).log_softmax(-1)
        log_probs[self.taken] = -torch.inf
        answer = torch.full_like(logits, -torch.inf)
        answer[0], answer[1] = 0.0, log_probs.logsumexp(-1).clamp(min=NOTHING)
        return answer


Request = Walk | Probe


def request_of(extra_args: dict[str, Any] | None, temperature: float) -> Request | None:
    """Return the request that extra arguments describe; None if it is not one of ours."""
    given = extra_args or {}
    if TREE in given:
        return Walk(decode(given[TREE]), temperature, int(given.get(TOP_K, 0)))
    if TAKEN in given:
        return Probe([int(token) for token in given[TAKEN]], given[TEMPERATURE], int(given[TOP_K]))
    return None


def process(logits: Tensor, requests: Sequence[tuple[int, Request]]) -> None:
    """Change the rows (rows, symbols) of requests that are at a prefix of the tree."""
    walks = [(row, x) for row, x in requests if isinstance(x, Walk)]
    for row, probe in requests:
        if isinstance(probe, Probe):
            logits[row] = probe.row(logits[row])
    if walks:
        index = torch.tensor([row for row, _ in walks], device=logits.device)
        logits[index] = leave_out(logits[index], [walk for _, walk in walks])


def leave_out(logits: Tensor, walks: Sequence[Walk]) -> Tensor:
    """Return the logits of tokens of completions that were not drawn, (walks, symbols)."""
    row, token, log_left = [], [], []
    for i, walk in enumerate(walks):
        children = walk.children()
        row += [i] * len(children)
        token += [walk.tree.token[child] for child in children]
        log_left += [walk.tree.log_left[child] * walk.temperature for child in children]
    possible = keep_top_k(logits, [walk.top_k for walk in walks])
    place = torch.tensor([row, token], dtype=torch.long, device=logits.device)
    change = torch.tensor(log_left, dtype=logits.dtype, device=logits.device)
    left = possible.index_put((place[0], place[1]), change, accumulate=True)
    # Nothing is left where the caller's rounding sent a draw: it repeats a completion, and is dropped.
    nothing = left.amax(-1, keepdim=True) == -torch.inf
    return torch.where(nothing, possible, left)


def keep_top_k(logits: Tensor, top_k: Sequence[int]) -> Tensor:
    """Mask all but the largest logits of every row, and those that are equal to the smallest of them."""
    symbols = logits.shape[-1]
    if not any(0 < k < symbols for k in top_k):
        return logits
    given = [k if 0 < k < symbols else 0 for k in top_k]
    count = torch.tensor(given, device=logits.device).unsqueeze(-1)
    smallest = logits.topk(max(given)).values.gather(-1, (count - 1).clamp(min=0))
    least = smallest.masked_fill(count == 0, -torch.inf)
    return logits.masked_fill(logits < least, -torch.inf)
