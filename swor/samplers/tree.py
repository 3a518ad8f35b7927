r"""The tree of what was drawn: how much of every node's probability mass is left.

Let $\varphi(v)$ be the fraction of the mass below node $v$ that was drawn: 1 at a leaf that was drawn,
and $\sum_c p(c \mid v) \varphi(c)$ over the children that were visited elsewhere. A draw that takes child
$c$ of $v$ with a probability proportional to $p(c \mid v) (1 - \varphi(c))$ never repeats an earlier one,
and has the law of $p$ restricted to what is left: the draws are an ordered sample without replacement
(Shi, Bieber and Sutton 2020, https://arxiv.org/abs/2002.09067).

A node keeps $\log(1 - \varphi)$ as a sum of positive terms, the mass of the children that were never
visited and what is left of the others, so nothing cancels when nearly all of the mass is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class Options(NamedTuple):
    """What a node offered at its first visit: enough to tell whether it offers the same again."""

    number: int
    checksum: float  # a fixed combination of all the probabilities


@dataclass(slots=True)
class Node:
    r"""A prefix of choices.

    Attributes:
        log_rest: log of the fraction of its mass that is left, $\log(1 - \varphi)$.
        children: those that were visited, by their index.
        options: None until a choice is made here.
    """

    log_rest: float = 0.0
    children: dict[int, Node] = field(default_factory=dict)
    options: Options | None = None

    def log_left(self, log_probs: Tensor) -> Tensor:
        r"""$\log p(c \mid v) + \log(1 - \varphi(c))$ of all children, (n,)."""
        if not self.children:
            return log_probs.clone()
        index = torch.tensor(list(self.children), device=log_probs.device)
        log_rest = log_probs.new_tensor([child.log_rest for child in self.children.values()])
        return log_probs.index_add(0, index, log_rest)


class Step(NamedTuple):
    """A choice: from a node to its child."""

    node: Node
    child: Node
    log_p: float  # of the child given the node
    log_others: float  # log of what is left of all other children, as a fraction of the node's mass


def use_up(steps: list[Step], leaf: Node) -> None:
    """Mark a leaf as drawn, and tell all nodes on the way to it what is left of them."""
    leaf.log_rest = -math.inf
    for step in reversed(steps):
        step.node.log_rest = _log_add(step.log_others, step.log_p + step.child.log_rest)


def _log_add(a: float, b: float) -> float:
    """Log of the sum of two numbers that are given by their logarithms."""
    larger = max(a, b)
    return larger if larger == -math.inf else larger + math.log1p(math.exp(min(a, b) - larger))
