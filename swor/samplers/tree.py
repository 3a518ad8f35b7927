r"""The tree of all draws so far, with the fraction of the probability mass that is left at every node.

Let $\varphi(v)$ be the fraction of the mass below node $v$ that was drawn. It is 1 at a leaf that was drawn,
and $\sum_c p(c \mid v) \varphi(c)$ over the visited children at any other node. If every draw takes child $c$
of $v$ with a probability proportional to $p(c \mid v) (1 - \varphi(c))$, it never repeats an earlier one, and
it has the distribution $p$ restricted to the leaves that were not drawn. The draws are therefore an ordered
sample without replacement; see Shi et al. (2020), https://arxiv.org/abs/2002.09067.

A node stores $\log(1 - \varphi)$. It is computed as a sum of positive terms, the mass of the children that
were never visited and the remaining mass of the others, so nothing cancels if nearly all mass was drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class Options(NamedTuple):
    """The options of a node at its first visit, to check that later visits offer the same ones."""

    number: int
    checksum: float  # a fixed combination of all the probabilities


@dataclass(slots=True)
class Node:
    r"""A prefix of choices.

    Attributes:
        log_rest: the log of the fraction of its mass that is left, $\log(1 - \varphi)$.
        children: the visited children, by index.
        options: None until a choice is made at this node.
    """

    log_rest: float = 0.0
    children: dict[int, Node] = field(default_factory=dict)
    options: Options | None = None

    def log_left(self, log_probs: Tensor) -> Tensor:
        r"""Return $\log p(c \mid v) + \log(1 - \varphi(c))$ of all children, (n,)."""
        if not self.children:
            return log_probs.clone()
        index = torch.tensor(list(self.children), device=log_probs.device)
        log_rest = log_probs.new_tensor([child.log_rest for child in self.children.values()])
        return log_probs.index_add(0, index, log_rest)


class Step(NamedTuple):
    """A choice that leads from a node to its child."""

    node: Node
    child: Node
    log_p: float  # of the child given the node
    log_others: (
        float  # log of the mass left at all other children, as a fraction of the node's mass
    )


def use_up(steps: list[Step], leaf: Node) -> None:
    """Mark a leaf as drawn, and update the remaining mass of all nodes on the way to it."""
    leaf.log_rest = -math.inf
    for step in reversed(steps):
        step.node.log_rest = _log_add(step.log_others, step.log_p + step.child.log_rest)


def _log_add(a: float, b: float) -> float:
    """Return the log of the sum of two numbers, given their logs."""
    larger = max(a, b)
    return larger if larger == -math.inf else larger + math.log1p(math.exp(min(a, b) - larger))
