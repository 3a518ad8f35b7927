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

The tree travels with each request as a string, so that engines keep nothing. Its nodes are in the order of a
breadth-first walk, so that the children of a node are next to each other. The string contains the number of
children, the token, and the log of the fraction left of every node. Prefixes whose fraction is 1 in the
engine's precision are not sent. If a draw repeats a completion there, the repetition is dropped.
"""

from __future__ import annotations

import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

TOLERANCE = math.log(16.0)
"""The largest ratio, in logs, of the masses that differences were taken of to the mass that is left."""
WHOLE = -(2.0**-25)  # adding it to a logit in single precision changes nothing


@dataclass(slots=True)
class Node:
    """A prefix of tokens, with the logs of masses."""

    log_p: float = 0.0  # of its last token, given those before it
    log_new: float = 0.0  # of the tokens that no draw has taken after it
    log_whole: float = 0.0  # of what log_new is a difference of, and its error relative to
    log_left: float = 0.0  # log(1 − φ), of the fraction of its mass that is left
    children: dict[int, Node] = field(default_factory=dict)  # after the tokens that were taken

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

        A draw is the tokens, and the log-probabilities that the engine drew them with from what was left of
        this tree. A completion may appear several times.
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


class Received(NamedTuple):
    """A tree as the engine has it; node 0 is the root."""

    first: tuple[int, ...]  # the first child of every node; one more entry than there are nodes
    token: tuple[int, ...]
    log_left: tuple[float, ...]

    def children(self, node: int) -> range:
        """Return the children of a node."""
        return range(self.first[node], self.first[node + 1])

    def child(self, node: int, token: int) -> int | None:
        """Return the node after a token; None if nothing was drawn there."""
        for child in self.children(node):
            if self.token[child] == token:
                return child
        return None


def encode(tree: Tree) -> str:
    """Return the string of a tree."""
    count, token, log_left = array("i"), array("i"), array("f")
    nodes = [(0, tree.root)]
    for number, node in nodes:  # the list grows
        children = _sent(node)
        count.append(len(children))
        token.append(number)
        log_left.append(node.log_left)
        nodes.extend(children)
    return b64encode(count.tobytes() + token.tobytes() + log_left.tobytes()).decode()


def _sent(node: Node) -> list[tuple[int, Node]]:
    if node.log_left == float("-inf"):
        return []
    return [(token, child) for token, child in node.children.items() if child.log_left < WHOLE]


@lru_cache(maxsize=256)
def decode(given: str) -> Received:
    """Return the tree of a string."""
    data = b64decode(given)
    size = 4 * (len(data) // 12)
    count, token, log_left = array("i"), array("i"), array("f")
    for numbers, start in ((count, 0), (token, size), (log_left, 2 * size)):
        numbers.frombytes(data[start : start + size])
    first = tuple(accumulate(count, initial=1))
    if len(data) != 12 * first[-1]:
        raise ValueError(
            f"the tree of a request has {len(data)} bytes and {first[-1]} nodes; expected 12 bytes for "
            "each. Use the same version of swor for the caller and the engine."
        )
    return Received(first, tuple(token), tuple(log_left))
