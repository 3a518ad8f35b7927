"""The tree of what was drawn as a string, which travels with each request, so that engines keep nothing.

The nodes are in the order of a breadth-first walk, so that the children of a node are next to each other.
The string contains the number of children, the token, and the log of the fraction left of every node.
Prefixes whose fraction is 1 in the engine's precision are not sent. If a draw repeats a completion there, the
repetition is dropped.
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from swor.integrations.vllm._trees import Node, Tree

WHOLE = -(2.0**-25)  # adding it to a logit in single precision changes nothing


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
