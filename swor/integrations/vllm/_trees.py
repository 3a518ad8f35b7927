r"""The tree of the completions of a prompt that were drawn, which the caller keeps.

A node is a prefix of tokens (see :mod:`swor.samplers._tree`). The engine draws token $c$ after prefix $v$
with the probability $p(c \mid v) (1 - \varphi(c)) / (1 - \varphi(v))$ and returns its logarithm, which is how
the caller learns $p(c \mid v)$. What is left at a node is a sum of positive terms: the mass of the tokens
that no draw has taken there, and what is left below the others.

The first of these terms is $1 - \sum p(c \mid v)$ over the tokens that were taken, unless that is too
imprecise: log-probabilities in single precision say little about $1 - p$ if $p$ is nearly 1. Let $P(v)$ be
the probability of a prefix, and $\epsilon$ the error of a log-probability. The differences have errors of at
most $\epsilon \sum_v P(v)$ together. If that is more than $16 \epsilon$ of the mass that is left, the engine
is asked for the mass of new tokens itself, at the prefixes that matter (:meth:`Tree.imprecise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TOLERANCE = math.log(16.0)
"""The largest ratio, in logs, of the masses that differences were taken of to the mass that is left."""


@dataclass(slots=True)
class Node:
    r"""A prefix of tokens.

    Attributes:
        log_p: of its last token, given those before it.
        log_new: log of the mass of the tokens that no draw has taken after it.
        log_whole: log of the mass that ``log_new`` is a difference of, so that its error is relative to it.
        log_left: log of the fraction of its mass that is left, $\log(1 - \varphi)$.
        children: the nodes after the tokens that were taken.
    """

    log_p: float = 0.0
    log_new: float = 0.0
    log_whole: float = 0.0
    log_left: float = 0.0
    children: dict[int, Node] = field(default_factory=dict)

    def take(self, token: int, log_p: float) -> Node:
        """Return the node after a token, which is a new one if no draw has taken it before."""
        if token not in self.children:
            self.children[token] = Node(log_p)
            self.log_new = log_difference(self.log_new, log_p)
        return self.children[token]

    def update(self) -> None:
        """Add up what is left, from the children."""
        below = [child.log_p + child.log_left for child in self.children.values()]
        self.log_left = log_sum([self.log_new, *below])


class Tree:
    """The completions of one prompt."""

    def __init__(self) -> None:
        self.root = Node()

    @property
    def log_rest(self) -> float:
        """The log of the mass of all completions that were not drawn."""
        return self.root.log_left

    def add(self, draws: Sequence[tuple[Sequence[int], Sequence[float]]]) -> list[float]:
        """Mark the completions of a round as drawn, and return their log-probabilities.

        Args:
            draws: tokens, and log-probabilities of these as the engine drew them from what was left of this
                tree. A completion may appear several times.
        """
        paths = [self._path(tokens, log_probs) for tokens, log_probs in draws]
        for path in paths:
            path[-1].log_new = path[-1].log_left = -math.inf
            for node in reversed(path[:-1]):
                node.update()
        return [math.fsum(node.log_p for node in path) for path in paths]

    def _path(self, tokens: Sequence[int], log_probs: Sequence[float]) -> list[Node]:
        """Return the nodes of a completion, the root first; what is left is that before the round."""
        path = [self.root]
        for token, log_prob in zip(tokens, log_probs, strict=True):
            path.append(path[-1].take(token, log_prob + path[-1].log_left))
        return path

    def imprecise(self) -> list[tuple[int, ...]]:
        """Return prefixes at which the mass of new tokens has to be measured; none if all is precise."""
        found = [
            (log_reach + node.log_whole, prefix) for log_reach, node, prefix in self._doubtful()
        ]
        allowed = self.log_rest + TOLERANCE
        if log_sum([error for error, _ in found]) <= allowed:
            return []
        each = allowed - math.log(len(found))
        return [prefix for error, prefix in found if error >= each]

    def set_new(self, prefix: Sequence[int], log_new: float) -> None:
        """Set the mass of the tokens that no draw has taken after a prefix, as the engine measured it."""
        path = [self.root]
        for token in prefix:
            path.append(path[-1].children[token])
        path[-1].log_new = path[-1].log_whole = log_new
        for node in reversed(path):
            node.update()

    def taken(self, prefix: Sequence[int]) -> list[int]:
        """Return the tokens that draws have taken after a prefix."""
        node = self.root
        for token in prefix:
            node = node.children[token]
        return list(node.children)

    def _doubtful(self) -> Iterator[tuple[float, Node, tuple[int, ...]]]:
        """Yield the nodes whose own difference is small, with the log of the probability of reaching them."""
        todo: list[tuple[float, Node, tuple[int, ...]]] = [(0.0, self.root, ())]
        while todo:
            log_reach, node, prefix = todo.pop()
            if node.children and node.log_whole > node.log_new + TOLERANCE:
                yield log_reach, node, prefix
            for token, child in node.children.items():
                if child.children:
                    todo.append((log_reach + child.log_p, child, (*prefix, token)))


def log_sum(terms: Sequence[float]) -> float:
    """Return the log of a sum, given the logs of its terms."""
    most = max(terms, default=-math.inf)
    if most == -math.inf:
        return most
    return most + math.log(math.fsum(math.exp(term - most) for term in terms))


def log_difference(a: float, b: float) -> float:
    r"""Return $\log(e^a - e^b)$, and −inf where rounding makes b the larger one."""
    return a + math.log(-math.expm1(b - a)) if b < a else -math.inf
