"""The settings of the commands that measure and compare trained models of tours."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import tyro

from reproduction.harness.errors import UserError, check_at_least, check_positive
from reproduction.harness.settings import (
    MAY_CHANGE,
    ComparisonSettings,
    ResumableSettings,
    own_first,
)
from reproduction.tsp.settings import Name, check_distinct

BLOCKS = 10  # of measured gradients, whose means tell the error of the measured bias


@own_first
@dataclass(frozen=True, kw_only=True)
class TSPVariance(ResumableSettings):
    """Measure the gradient variance and bias of the estimators of Figure 3 on kept models of a run.

    Every estimator draws k tours of each instance of one fixed minibatch, whose instances interact by
    batch norm. reinforce_rollout and reinforce_batch_mean, which train with one tour of each of k times
    as many instances, draw k independent tours of each here, and sum_and_sample_shared_sampled_baseline
    k - 1 tours and one for its baseline.

    Attributes:
        run: folder of a run of python -m reproduction tsp with --keep-steps.
        steps: which of the kept models to measure; by default all. A resumed measurement may be given
            more.
        estimators: which to measure; rloo, which the others are compared with, must be among them.
            A resumed measurement may be given more.
        k: number of tours of an instance.
        batch_size: number of instances of the minibatch.
        repetitions: gradients per estimator and model.
        reference: gradients of unordered_set, which is unbiased, that the bias is measured against.
    """

    run: tyro.conf.Positional[Path]
    steps: tuple[int, ...] = field(default=(), metadata=MAY_CHANGE)
    estimators: tuple[Name, ...] = field(default=get_args(Name), metadata=MAY_CHANGE)
    k: int = 4
    batch_size: int = 128
    repetitions: int = 300
    reference: int = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "k", "batch_size")
        check_at_least(self, BLOCKS, "repetitions", "reference")
        if "rloo" not in self.estimators:
            raise UserError(
                f"estimators is {self.estimators}; expected rloo among them, since the variance "
                "of the others is compared with it. Add it."
            )


@dataclass(frozen=True, kw_only=True)
class TSPPretrained:
    """Read one of the Attention Models that Kool et al. (2019) released, and write it like a run of tsp.

    The folder has the model as model.safetensors, for tsp --start-from and tsp-best-of-k, and as the
    kept model of step 250 000, for tsp-variance. The greedy gap on the validation instances is in
    validation.csv.

    Attributes:
        nodes: number of nodes that the model was trained on.
        file: of the model; by default that of the release, below the folder in SWOR_DATA.
        validation_size: number of validation instances, of which there are 10 000; 0 for none.
        out: folder to write to; by default a new one in runs/.
    """

    nodes: int = 20
    file: Path | None = None
    validation_size: int = 10_000
    out: Path | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 2, "nodes")
        check_at_least(self, 0, "validation_size")


@dataclass(frozen=True, kw_only=True)
class TSPBestOfK(ResumableSettings):
    """Find the best of k tours, independent, distinct and by beam search, as k doubles, with its gap.

    Writes best_of_k.csv, best_of_k.md, answer.md and best_of_k.png. Instances are done in parts, and a
    run that was interrupted keeps those that it has done.

    Attributes:
        model: the model.safetensors of a run of python -m reproduction tsp or tsp-pretrained.
        nodes: number of nodes of an instance.
        instances: number of validation instances.
        k: the largest number of tours.
        optimal: measure gaps to the shortest tours, which are solved for exactly; without it, to the
            shortest tour of an instance that any of the methods has found.
    """

    model: tyro.conf.Positional[Path]
    nodes: int = 20
    instances: int = 10_000
    k: int = 128
    optimal: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "nodes", "instances")
        check_positive(self, "k")
        check_distinct("unordered_set", self.k, self.nodes)


@dataclass(frozen=True, kw_only=True)
class TSPFigures(ComparisonSettings):
    """Plot the optimality gap of runs of the command tsp against training steps and against instances.

    All runs have the same number of nodes. A folder that this command wrote before stands for the runs
    that were given to it.
    """


@own_first
@dataclass(frozen=True, kw_only=True)
class TSPPaired(ComparisonSettings):
    """Compare the final models of runs instance by instance, by the gaps of their greedy tours.

    The runs are finished runs of the command tsp, with the same number of nodes, from the same start. A
    folder that this command wrote before stands for the runs that were given to it. Writes final_gaps.npz
    (of every instance, by run), paired.csv and paired.md.

    Attributes:
        instances: number of validation instances.
    """

    instances: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "instances")
