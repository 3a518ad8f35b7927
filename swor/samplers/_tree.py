r"""The tree of all draws so far, with the fraction of the probability mass that is left at every node.

Let $\varphi(v)$ be the fraction of the mass below node $v$ that was drawn. It is 1 at a leaf that was drawn,
and $\sum_c p(c \mid v) \varphi(c)$ over the visited children at any other node. If every draw takes child $c$
of $v$ with a probability proportional to $p(c \mid v) (1 - \varphi(c))$, it never repeats an earlier one, and
it has the distribution $p$ restricted to the leaves that were not drawn. The draws are therefore an ordered
sample without replacement; see Shi et al. (2020), https://arxiv.org/abs/2002.09067. A :class:`Walk` is one
such draw.

A node stores $\log(1 - \varphi)$. It is computed as a sum of positive terms, the mass of the children that
were never visited and the remaining mass of the others, so nothing cancels if nearly all mass was drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import check_log_probs, check_normalized
from swor.samplers._race import gumbel_like

# The largest difference between the probabilities of a node and those of an earlier visit.
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
SAME = (
    "expected the same options with the same probabilities after the same choices. Let choose be the "
    "program's only source of randomness for its choices, and make a new object when the probabilities "
    "change, for instance after a step of an optimiser."
)


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
    log_others: float  # log of the fraction of the node's mass that is left at all other children


def use_up(steps: list[Step], leaf: Node) -> None:
    """Mark a leaf as drawn, and update the remaining mass of all nodes on the way to it."""
    leaf.log_rest = -math.inf
    for step in reversed(steps):
        step.node.log_rest = _log_add(step.log_others, step.log_p + step.child.log_rest)


def _log_add(a: float, b: float) -> float:
    """Return the log of the sum of two numbers, given their logs."""
    larger = max(a, b)
    return larger if larger == -math.inf else larger + math.log1p(math.exp(min(a, b) - larger))


class Walk:
    """One draw: a walk from the root to a leaf that was not drawn before.

    Args:
        root: the root of the tree.
        generator: the source of randomness, on the CPU.
    """

    def __init__(self, root: Node, generator: torch.Generator | None) -> None:
        self.node, self.generator = root, generator
        self.path: list[int] = []
        self.log_p: list[Tensor] = []  # of every choice, with gradient
        self._steps: list[Step] | None = []

    def choose(self, log_probs: Tensor) -> int:
        """Return the index of the next choice.

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
        index = pick_child(log_left, self.generator)
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
        self.log_p.append(log_probs[index].clone())  # the program may use its tensor again
        self.node = child
        return index

    def end(self) -> None:
        """End the run, and mark its leaf as drawn."""
        if self.node.options is not None:
            raise ValueError(
                f"the run ended after the choices {self.path}, where an earlier run went on to choose "
                f"among {self.node.options.number} options; {SAME}"
            )
        use_up(self._steps or [], self.node)
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


def pick_child(log_mass: Tensor, generator: torch.Generator | None) -> int:
    """Draw an index with a probability proportional to its mass."""
    return int((log_mass + gumbel_like(log_mass, generator)).argmax())


def _checked(log_probs: Tensor) -> Tensor:
    """Return log-probabilities in double precision, normalised again."""
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
    """Return different coefficients, so that swapping two probabilities changes the checksum."""
    return torch.cos(torch.arange(n, dtype=torch.float64, device="cpu"))
