"""The settings of the language model experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from swor.experiments.errors import UserError, check_positive
from swor.experiments.resume import MAY_CHANGE
from swor.experiments.task import Training


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Training):
    """Train a small GPT from scratch to sort digits, by a reward for its completions.

    Attributes:
        estimator: unordered_set of distinct completions, or reinforce, the leave-one-out estimator
            of independent ones.
        k: completions per prompt.
        digits: of a prompt.
        base: the number of different digits.
        batch_size: prompts per step, shared by all processes.
        learning_rate: of Adam.
        layers: of the GPT.
        width: of the GPT.
        heads: of the GPT; they share the width.
        validate_every: steps of an epoch, after which the model is validated.
        validation_size: the number of prompts to validate with.
        out: folder of the run; by default a new one in runs/.
        resume: folder of a run to continue; its settings become the defaults.
    """

    estimator: Literal["unordered_set", "reinforce"] = "unordered_set"
    k: int = 4
    digits: int = 5
    base: int = 5
    batch_size: int = 32
    learning_rate: float = 1e-3
    clip: float | None = 1.0
    layers: int = 2
    width: int = 64
    heads: int = 4
    validate_every: int = 100
    validation_size: int = 500
    log_every: int = 25
    out: Path | None = field(default=None, metadata=MAY_CHANGE)
    resume: Path | None = field(default=None, metadata=MAY_CHANGE)

    def check(self) -> None:
        """Refuse settings that make no sense."""
        if self.k < 2:
            raise UserError(f"k is {self.k}; expected at least 2, to compare completions.")
        if self.base < 2:
            raise UserError(f"base is {self.base}; expected at least 2 different digits.")
        check_positive(self, "digits", "batch_size", "layers", "width", "heads", "validate_every")
        if self.width % self.heads:
            raise UserError(
                f"width is {self.width} and heads {self.heads}; expected a width that the heads "
                "can share. Choose a multiple."
            )
