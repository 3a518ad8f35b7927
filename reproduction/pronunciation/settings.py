"""The settings of the experiment with pronunciations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from reproduction.harness.errors import UserError, check_at_least, check_positive
from reproduction.harness.settings import (
    MAY_CHANGE,
    ComparisonSettings,
    ResumableSettings,
    TrainingSettings,
)

Objective = Literal["mean", "best_of", "log_success"]


@dataclass(frozen=True, kw_only=True)
class PronunciationSettings(TrainingSettings):
    """Fine-tune a network that pronounces words by a reward of 1 for a right pronunciation.

    Needs the extra pronunciation. The network, which others have trained, has seen the words of CMUdict;
    the words that it is validated with are none of those that are trained on here.

    Attributes:
        epochs: number of epochs in all; a resumed run may be given more.
        estimator: unordered_set of distinct pronunciations, or rloo, of independent ones.
        objective: the probability of success of one draw (mean), of the best of m, or its logarithm, by
            its series up to the order m (log_success).
        m: of the objective; by default k for best_of, and k - 1 for log_success.
        k: pronunciations of each word.
        batch_size: words per step, shared by all processes.
        learning_rate: of Adam.
        validate_every: steps of an epoch, after which the model is validated.
        validate_on: words to validate with: test for a result, valid to choose settings.
        validation_size: number of words to validate with.
    """

    epochs: int = field(default=5, metadata=MAY_CHANGE)
    estimator: Literal["unordered_set", "rloo"] = "unordered_set"
    objective: Objective = "mean"
    m: int | None = None
    k: int = 4
    batch_size: int = 64
    learning_rate: float = 1e-4
    clip: float | None = 1.0
    validate_every: int = 100
    validate_on: Literal["valid", "test"] = "test"
    validation_size: int = 2000
    log_every: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "k")
        check_positive(self, "batch_size", "learning_rate", "validate_every", "validation_size")
        if self.m is not None and self.objective == "mean":
            raise UserError(
                f"m is {self.m}, but the objective is the mean; expected no m. Leave out --m, or give "
                "--objective best_of or log_success."
            )
        if not 1 <= self.order <= self.k:
            raise UserError(
                f"m is {self.order} and k {self.k}; expected from 1 to k, since it is estimated from m "
                "samples or more. Raise --k, or lower --m."
            )
        independent = self.objective == "log_success" and self.estimator == "rloo"
        if independent and self.order != self.k - 1:
            raise UserError(
                f"m is {self.m}; expected {self.k - 1}, k - 1, the order of log_success from k "
                "independent samples. Leave out --m."
            )

    @property
    def order(self) -> int:
        """The m that is used; 1 for the mean."""
        default = {"mean": 1, "best_of": self.k, "log_success": self.k - 1}[self.objective]
        return default if self.m is None else self.m

    def resolved(self) -> PronunciationSettings:
        """Return the settings with every default filled in, as a run stores them."""
        return replace(self, m=None if self.objective == "mean" else self.order)


@dataclass(frozen=True, kw_only=True)
class PronunciationMeasure(ResumableSettings):
    """Measure independent and distinct pronunciations of held-out words by a network that others trained.

    Writes groups.csv (duplicates and groups without signal), variance.csv (of the gradient of all
    parameters), pass.csv (pass@m), samples.md, pass.md and measured.png. Needs the extra pronunciation.

    Attributes:
        k: numbers of samples of a word; a resumed measurement may be given more.
        words: number of words whose samples are counted.
        batch_size: words of the minibatch whose gradient is measured.
        repetitions: gradients per estimator and k.
        pass_k: samples of a word that pass@m is estimated from, for m of 1, 2, 4, … up to it.
        pass_words: number of words of such an evaluation.
        pass_repetitions: number of evaluations.
    """

    k: tuple[int, ...] = field(default=(2, 4, 8, 16), metadata=MAY_CHANGE)
    words: int = 1000
    batch_size: int = 64
    repetitions: int = 300
    pass_k: int = 8
    pass_words: int = 200
    pass_repetitions: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "words", "repetitions", "pass_k", "pass_words", "pass_repetitions")
        check_positive(self, "batch_size")
        if not self.k or min(self.k) < 2:
            raise UserError(f"k is {self.k}; expected numbers of at least 2.")


@dataclass(frozen=True, kw_only=True)
class PronunciationFigures(ComparisonSettings):
    """Compare runs of the command pronunciation: curves, and differences of runs with the same seeds.

    The runs have the same number of steps.
    """
