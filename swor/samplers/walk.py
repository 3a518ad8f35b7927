"""A walk through the tree of what was drawn, to a leaf that is new."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from swor.checks import check_log_probs, check_normalized
from swor.samplers.race import gumbel_like
from swor.samplers.tree import Node, Options, Step, use_up

# How far the probabilities of a node may be from those of an earlier visit.
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}


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
        """The run has ended: its leaf is drawn."""
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


SAME = (
    "expected the same options with the same probabilities after the same choices. Let choose be the "
    "program's only source of randomness for its choices, and begin anew when the probabilities change, "
    "for instance after a step of an optimiser."
)


def pick(log_mass: Tensor, generator: torch.Generator | None) -> int:
    """An index with a probability proportional to its mass."""
    return int((log_mass + gumbel_like(log_mass, generator)).argmax())


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
