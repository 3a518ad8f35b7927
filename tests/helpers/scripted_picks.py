"""Every outcome of an experiment that draws by ``pick``, with its probability: no random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import torch
from torch import Tensor

Outcome = TypeVar("Outcome")


class Script:
    """Stands in for ``pick``: follows a path through the tree of all picks, and writes it on."""

    def __init__(self) -> None:
        self.path: list[
            tuple[list[int], list[float]]
        ] = []  # what is still to be taken, first first
        self.position = 0

    def pick(self, log_mass: Tensor, generator: torch.Generator | None) -> int:
        if self.position == len(self.path):
            p = log_mass.softmax(-1).tolist()
            possible = [i for i, x in enumerate(p) if x > 0.0]
            self.path.append((possible, [p[i] for i in possible]))
        options, _ = self.path[self.position]
        self.position += 1
        return options[0]

    def probability(self) -> float:
        return float(torch.tensor([p[0] for _, p in self.path], dtype=torch.float64).prod())

    def go_on(self) -> bool:
        """To the next path; whether there is one."""
        self.position = 0
        while self.path:
            options, p = self.path[-1]
            if len(options) > 1:
                self.path[-1] = (options[1:], p[1:])
                return True
            self.path.pop()
        return False


def outcomes(experiment: Callable[[], Outcome], name: str) -> Iterator[tuple[float, Outcome]]:
    """All results of an experiment, each with the probability of the picks that lead to it.

    Args:
        experiment: what is to be enumerated.
        name: of the function that picks, such as "swor.samplers._tree.pick_child".
    """
    script = Script()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, script.pick)
        while True:
            result = experiment()
            yield script.probability(), result
            if not script.go_on():
                return
