"""Settings of the travelling salesman experiment; the paper's by default."""

from __future__ import annotations

from dataclasses import dataclass, field

from swor.experiments.errors import UserError, check_positive
from swor.experiments.task import Training


@dataclass(frozen=True)
class ModelSettings:
    """Sizes of the Attention Model: 708 608 parameters by default.

    Attributes:
        width: of the embedding of a node.
        heads: of every attention; they share the width.
        layers: of the encoder.
        hidden: width of the feed-forward part of a layer.
        clip: logits lie between −clip and clip.
    """

    width: int = 128
    heads: int = 8
    layers: int = 3
    hidden: int = 512
    clip: float = 10.0

    def __post_init__(self) -> None:
        check_positive(self, "width", "heads", "layers", "hidden", "clip")
        if self.width % self.heads:
            raise UserError(
                f"width is {self.width} and heads {self.heads}; expected a width that the heads "
                "can share. Choose a multiple."
            )


@dataclass(frozen=True, kw_only=True)
class TspSettings(Training):
    """Settings of a run.

    Attributes:
        nodes: of an instance.
        estimator: one of :data:`swor.experiments.tsp.estimators.TOUR_ESTIMATORS`.
        k: tours per instance; 1 for the single-sample estimators.
        batch_size: instances in a step; 512 tours are 512 / k instances.
        learning_rate: of Adam.
        validate_every: steps of an epoch, after which the model is validated and the rollout
            baseline may be replaced.
        validation_size: the number of validation instances.
        rollout_size: the number of instances of the t-test of the rollout baseline.
        model: the sizes of the model.
    """

    nodes: int = 20
    estimator: str = "unordered_set"
    k: int = 4
    batch_size: int = 128
    learning_rate: float = 1e-4
    clip: float | None = 1.0
    validate_every: int = 2500
    validation_size: int = 10_000
    rollout_size: int = 10_000
    model: ModelSettings = field(default_factory=ModelSettings)

    def __post_init__(self) -> None:
        from swor.experiments.tsp.estimators import TOUR_ESTIMATORS

        super().__post_init__()
        check_positive(
            self, "k", "batch_size", "learning_rate", "validate_every", "validation_size"
        )
        if self.nodes < 2:
            raise UserError(f"nodes is {self.nodes}; expected at least 2.")
        if self.estimator not in TOUR_ESTIMATORS:
            raise UserError(
                f"estimator is {self.estimator!r}; expected one of {', '.join(TOUR_ESTIMATORS)}."
            )
        if TOUR_ESTIMATORS[self.estimator].single and self.k != 1:
            raise UserError(
                f"k is {self.k}, but {self.estimator} draws a single tour per instance; expected "
                "k = 1. Leave k out."
            )
        if TOUR_ESTIMATORS[self.estimator].baseline == "batch mean" and self.batch_size < 2:
            raise UserError(
                "batch_size is 1; expected at least two instances, to compare one with the others."
            )
        if self.rollout_size < 2:
            raise UserError(
                f"rollout_size is {self.rollout_size}; expected at least 2, for a t-test."
            )
