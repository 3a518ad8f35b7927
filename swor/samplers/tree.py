r"""The tree of what was drawn: how much of every node's probability mass is left.

Let $\varphi(v)$ be the fraction of the mass below node $v$ that was drawn: 1 at a leaf that was drawn,
and $\sum_c p(c \mid v) \varphi(c)$ over the children that were visited elsewhere. A draw that takes child
$c$ of $v$ with a probability proportional to $p(c \mid v) (1 - \varphi(c))$ never repeats an earlier one,
and has the law of $p$ restricted to what is left: the draws are an ordered sample without replacement
(Shi, Bieber and Sutton 2020, https://proceedings.mlr.press/v119/shi20a.html).

A node keeps $\log(1 - \varphi)$ as a sum of positive terms, the mass of the children that were never
visited and what is left of the others, so nothing cancels when nearly all of the mass is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from swor.checks import check_log_probs, check_normalized
from swor.samplers.race import gumbel_like

# How far the probabilities of a node may be from those of an earlier visit.
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}


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
        index = torch.tensor(list(self.children))
        log_rest = torch.tensor([c.log_rest for c in self.children.values()], dtype=log_probs.dtype)
        return log_probs.index_add(0, index, log_rest)


class Step(NamedTuple):
    """A choice: from a node to its child."""

    node: Node
    child: Node
    log_p: float  # of the child given the node
    log_others: float  # log of what is left of all other children, as a fraction of the node's mass


class Walk:
    """One draw: a walk from the root to a leaf that was not drawn before.

    Args:
        root: of the tree.
        generator: the source of randomness, on the CPU.
    """

    def __init__(self, root: Node, generator: torch.Generator | None) -> None:
        self.node, self.generator = root, generator
        self.path: list[int] = []
        self.log_p: list[Tensor] = []  # of every choice, with gradient
        self._steps: list[Step] | None = []

    def choose(self, log_probs: Tensor) -> int:
        """The index of the next choice.

        Args:
            log_probs: normalised log-probabilities of the options, (n,); −inf masks an option.
        """
        if self._steps is None:
            raise RuntimeError(
                "choose was called after its run had ended; expected every run to use the choose "
                "that it was given."
            )
        given = _checked(log_probs)
        self._check_options(given, AGREEMENT[log_probs.dtype])
        log_left = self.node.log_left(given)
        index = pick(log_left, self.generator)
        if log_left[index] == -torch.inf:
            raise ValueError(
                f"no option of positive probability is left after the choices {self.path}; {SAME}"
            )
        log_left[index] = -torch.inf
        child = self.node.children.setdefault(index, Node())
        self._steps.append(
            Step(self.node, child, float(given[index]), float(log_left.logsumexp(0)))
        )
        self.path.append(index)
        self.log_p.append(log_probs[index])
        self.node = child
        return index

    def end(self) -> None:
        """Mark the leaf as drawn, and tell all nodes on the way to it what is left of them."""
        if self.node.options is not None:
            raise ValueError(
                f"the run ended after the choices {self.path}, where an earlier run went on to choose "
                f"among {self.node.options.number} options; {SAME}"
            )
        self.node.log_rest = -math.inf
        for step in reversed(self._steps or []):
            step.node.log_rest = log_add(step.log_others, step.log_p + step.child.log_rest)
        self._steps = None

    def _check_options(self, log_probs: Tensor, tolerance: float) -> None:
        offered, before = _options(log_probs), self.node.options
        if before is None:
            self.node.options = offered
        elif offered.number != before.number:
            raise ValueError(
                f"the program offered {offered.number} options after the choices {self.path}, where "
                f"an earlier run was offered {before.number}; {SAME}"
            )
        elif not abs(offered.checksum - before.checksum) <= tolerance:
            raise ValueError(
                f"the program offered other probabilities after the choices {self.path} than in an "
                f"earlier run; {SAME}"
            )


SAME = (
    "expected the same options with the same probabilities after the same choices. Let choose be the "
    "program's only source of randomness for its choices, and begin anew when the probabilities change, "
    "for instance after a step of an optimiser."
)


def pick(log_mass: Tensor, generator: torch.Generator | None) -> int:
    """An index with a probability proportional to its mass."""
    return int((log_mass + gumbel_like(log_mass, generator)).argmax())


def log_add(a: float, b: float) -> float:
    """Log of the sum of two numbers that are given by their logarithms."""
    larger = max(a, b)
    return larger if larger == -math.inf else larger + math.log1p(math.exp(min(a, b) - larger))


def _checked(log_probs: Tensor) -> Tensor:
    """Normalised to the last digit, in double precision."""
    check_log_probs("log_probs", log_probs)
    if log_probs.dim() != 1:
        raise ValueError(
            f"log_probs has shape {tuple(log_probs.shape)}; expected (n,), the options of one choice."
        )
    given = log_probs.detach().to("cpu", torch.float64)
    log_total = given.logsumexp(0)
    check_normalized(log_total.exp(), log_probs.dtype)
    return given - log_total


def _options(log_probs: Tensor) -> Options:
    return Options(len(log_probs), float(log_probs.exp() @ _signs(len(log_probs))))


@lru_cache(maxsize=256)
def _signs(n: int) -> Tensor:
    """Different coefficients, so that probabilities that change places change the checksum."""
    return torch.cos(torch.arange(n, dtype=torch.float64))
