"""The settings of training on the travelling salesman problem; the paper's by default."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import tyro

from reproduction.harness.best_of import check_best_of
from reproduction.harness.errors import UserError, check_at_least, check_heads, check_positive
from reproduction.harness.models import content_sha256, kept_settings
from reproduction.harness.settings import MAY_CHANGE, TrainingSettings, own_first

TOURS = 512  # in a batch of the paper, however many of them are of the same instance

Name = Literal[
    "reinforce_rollout",
    "reinforce_batch_mean",
    "rloo",
    "sum_and_sample_shared_sampled_baseline",
    "unordered_set",
    "normalized_importance_weighted",
    "risk",
    "risk_beam_search",
]
SINGLE: tuple[Name, ...] = ("reinforce_rollout", "reinforce_batch_mean")
"""Estimators that draw one tour per instance; its baseline comes from other instances or models."""

MOST_LAYERS = 1000  # a damaged file may claim more, which take minutes to make


def check_distinct(estimator: Name, k: int, nodes: int) -> None:
    """Refuse a number of distinct tours, each with a start and a direction, that do not exist."""
    tours = math.factorial(min(nodes, 20))  # above 20 nodes there are more than anybody asks for
    if k > tours:
        raise UserError(
            f"k is {k}, but there are only {tours} tours of {nodes} nodes, and {estimator} "
            "draws distinct ones; expected at most as many. Lower --k, or give more nodes."
        )


@dataclass(frozen=True, kw_only=True)
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
    clip: tyro.conf.Suppress[float] = 10.0  # the option --clip is that of the gradient

    def __post_init__(self) -> None:
        check_positive(self, "width", "heads", "layers", "hidden", "clip")
        if self.layers > MOST_LAYERS:
            raise UserError(f"layers is {self.layers}; expected at most {MOST_LAYERS}.")
        check_heads(self.width, self.heads)


@own_first
@dataclass(frozen=True, kw_only=True)
class TSPSettings(TrainingSettings):
    """Train the Attention Model on random instances of the travelling salesman problem.

    Attributes:
        nodes: number of nodes of an instance.
        estimator: of the gradient.
        k: tours per instance; by default 4, or 1 for reinforce_rollout and reinforce_batch_mean.
        steps: number of steps in all, a multiple of --validate-every; a resumed run may be given
            more.
        batch_size: instances in a step; by default 512 / k.
        learning_rate: of Adam.
        validate_every: steps of an epoch, after which the model is validated and a rollout baseline
            may be replaced; by default 2500, or all steps if there are fewer.
        validation_size: number of validation instances.
        rollout_size: number of instances of the t-test that replaces a rollout baseline.
        best_of: train for the shortest of this many independent tours, in the place of the mean;
            for unordered_set and rloo, with k of this size or more.
        validate_best_of: also validate the mean of sampled tours, and the shortest of this many; by
            default as many as best_of.
        start_from: a model.safetensors of another run, whose weights training starts from, with a new
            optimiser; a rollout baseline starts from it too, without its first epoch. Give another
            seed than that of the run, or it sees the same instances again.
        model: sizes of the model.
    """

    nodes: int = 20
    estimator: Name = "unordered_set"
    k: int | None = None
    steps: int = field(default=250_000, metadata=MAY_CHANGE)
    batch_size: int | None = None
    learning_rate: float = 1e-4
    clip: float | None = 1.0
    validate_every: int | None = None
    validation_size: int = 10_000
    rollout_size: int = 10_000
    best_of: int | None = None
    validate_best_of: int | None = None
    start_from: Path | None = None
    start_sha256: tyro.conf.Suppress[str | None] = None  # of its content; filled in by the command
    model: ModelSettings = field(default_factory=ModelSettings)

    def __post_init__(self) -> None:
        check_at_least(self, 2, "nodes", "rollout_size")
        check_positive(self, "k", "steps", "batch_size", "learning_rate", "validate_every")
        check_positive(self, "validation_size", "validate_best_of")
        if self.estimator in SINGLE and self.samples != 1:
            raise UserError(
                f"k is {self.k}, but {self.estimator} draws a single tour per instance; expected "
                "k = 1. Leave k out."
            )
        if self.estimator not in (*SINGLE, "rloo"):
            check_distinct(self.estimator, self.samples, self.nodes)
        if self.estimator == "reinforce_batch_mean" and self.instances < 2:
            raise UserError(
                "batch_size is 1; expected at least two instances, to compare one with the others."
            )
        check_best_of(self.best_of, self.estimator, self.samples)
        if self.steps % self.epoch_steps:
            raise UserError(
                f"steps is {self.steps}; expected a positive multiple of {self.epoch_steps}, the "
                "steps between validations. Change one of --steps and --validate-every."
            )
        super().__post_init__()

    @property
    def samples(self) -> int:
        """The number of tours per instance that is used."""
        return (1 if self.estimator in SINGLE else 4) if self.k is None else self.k

    @property
    def instances(self) -> int:
        """The batch size that is used."""
        return max(TOURS // self.samples, 1) if self.batch_size is None else self.batch_size

    @property
    def epoch_steps(self) -> int:
        """The number of steps of an epoch that is used."""
        return min(2500, self.steps) if self.validate_every is None else self.validate_every

    @property
    def epochs(self) -> int:
        """Number of epochs in all."""
        return self.steps // self.epoch_steps

    @property
    def length(self) -> str:
        """How long the run is, and the option that says so."""
        return f"{self.steps:,} steps (--steps)"

    def resolved(self) -> TSPSettings:
        """Return the settings with every default filled in, as a run stores them."""
        return replace(
            self,
            k=self.samples,
            batch_size=self.instances,
            validate_every=self.epoch_steps,
            validate_best_of=self.validate_best_of or self.best_of,
        )


def with_start(settings: TSPSettings) -> TSPSettings:
    """Fill in the SHA-256 of the model that training starts from; it must not change afterwards."""
    path = settings.start_from
    if path is None:
        return settings
    if kept_settings(path, ModelSettings) != settings.model:
        raise UserError(
            f"{path} is a model of other sizes, {kept_settings(path, ModelSettings)}; expected "
            f"{settings.model}. Give --width, --heads, --layers and --hidden of that model."
        )
    found = content_sha256(path)
    if settings.start_sha256 not in (None, found):
        raise UserError(
            f"{path} has changed since the run was started: the SHA-256 of its weights is {found}; expected "
            f"{settings.start_sha256}. Restore the file, or start another run."
        )
    return replace(settings, start_sha256=found)
