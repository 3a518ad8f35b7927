"""The settings of the language model experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from reproduction.harness.best_of import check_best_of
from reproduction.harness.errors import UserError, check_at_least, check_heads, check_positive
from reproduction.harness.settings import (
    MAY_CHANGE,
    ComparisonSettings,
    TrainingSettings,
    own_first,
)


@own_first
@dataclass(frozen=True, kw_only=True)
class LMSettings(TrainingSettings):
    """Train a small GPT from scratch to sort digits, by a reward for its completions.

    Attributes:
        epochs: number of epochs in all; a resumed run may be given more.
        estimator: unordered_set of distinct completions, or rloo, the leave-one-out estimator
            of independent ones.
        k: completions per prompt.
        digits: number of digits of a prompt.
        base: number of different digits.
        batch_size: prompts per step, shared by all processes.
        learning_rate: of Adam.
        layers: of the GPT.
        width: of the GPT.
        heads: of the GPT; they share the width.
        validate_every: steps of an epoch, after which the model is validated.
        validation_size: number of prompts to validate with.
        reward: share, of the tokens that are right; or exact, 1 for the right answer and 0 for all
            others.
        supervised_until: train on right answers first, until this share of the validation prompts is
            solved; 0 starts from random weights. All estimators of a seed have the same start.
        supervised_by: how a prompt is solved then: greedy decoding may be right long before the model
            is confident, sampled completions may not.
        best_of: train for the best of this many independent completions, in the place of the mean;
            at most k.
        log_success: train for the log of the probability of success, by its series up to this order, in
            the place of the mean; at most k, and k - 1 for rloo, which is MaxRL. The reward is exact.
        validate_best_of: also validate the mean reward of sampled completions, and the best of this
            many; by default as many as best_of.
    """

    epochs: int = field(default=10, metadata=MAY_CHANGE)
    estimator: Literal["unordered_set", "rloo"] = "unordered_set"
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
    reward: Literal["share", "exact"] = "share"
    supervised_until: float = 0.0
    supervised_by: Literal["greedy", "sampled"] = "greedy"
    best_of: int | None = None
    log_success: int | None = None
    validate_best_of: int | None = None
    log_every: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "k", "base")
        check_positive(self, "digits", "batch_size", "layers", "width", "heads")
        check_positive(self, "learning_rate", "validate_every", "validation_size")
        if self.estimator == "unordered_set" and self.k > self.completions:
            raise UserError(
                f"k is {self.k}, but there are only {self.completions} completions of {self.digits} "
                "digits, and unordered_set draws distinct ones; expected at most as many. Lower --k, "
                "or give more digits."
            )
        check_best_of(self.best_of, self.estimator, self.k)
        self._check_log_success()
        check_positive(self, "validate_best_of")
        if not 0.0 <= self.supervised_until <= 1.0:
            raise UserError(
                f"supervised_until is {self.supervised_until}; expected a share, from 0 to 1."
            )
        check_heads(self.width, self.heads)

    def _check_log_success(self) -> None:
        if self.log_success is None:
            return
        if self.best_of is not None or self.reward != "exact":
            raise UserError(
                f"log_success is {self.log_success}, best_of {self.best_of} and the reward "
                f"{self.reward}; expected no best_of and --reward exact, which is 0 or 1."
            )
        orders = range(1, self.k + 1) if self.estimator == "unordered_set" else [self.k - 1]
        if self.log_success not in orders:
            raise UserError(
                f"log_success is {self.log_success}, k {self.k} and the estimator {self.estimator}; "
                "expected an order from 1 to k, and of k - 1 for rloo, since MaxRL has no other."
            )

    @property
    def completions(self) -> int:
        """The number of completions; of those of up to 40 tokens, if there are longer ones."""
        return sum((self.base + 1) ** length for length in range(min(self.digits + 1, 40) + 1))


@own_first
@dataclass(frozen=True, kw_only=True)
class LMFigures(ComparisonSettings):
    """Plot the metrics of runs of the command lm: a thin line for each run, a thick one for their mean.

    The runs have the same number of steps. A table has the steps that they need until they solve a share
    of the prompts.

    Attributes:
        target: share of the prompts that has to be solved.
        measure: how a prompt is solved: by greedy decoding, or by sampled completions on average.
    """

    target: float = 0.95
    measure: Literal["greedy", "sampled"] = "greedy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.target <= 1.0:
            raise UserError(f"target is {self.target}; expected a share above 0 and up to 1.")
