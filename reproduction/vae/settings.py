"""The settings of the VAE experiment; the paper's by default."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from reproduction.harness.errors import UserError, check_at_least, check_positive
from reproduction.harness.images import Name
from reproduction.harness.settings import (
    MAY_CHANGE,
    ComparisonSettings,
    ResumableSettings,
    TrainingSettings,
    own_first,
)
from reproduction.vae.published import LEARNING_RATES, PAPER, Domain, paper_k
from swor.estimators.registry import ESTIMATORS

METHODS = {name: entry for name, entry in ESTIMATORS.items() if name != "vimco"}
"""Estimators of the ELBO; VIMCO has an objective of its own."""

if TYPE_CHECKING:
    Estimator = str
else:
    Estimator = tyro.extras.literal_type_from_choices(METHODS)  # listed by --help


@own_first
@dataclass(frozen=True, kw_only=True)
class VAESettings(TrainingSettings):
    """Train the categorical VAE.

    Attributes:
        epochs: number of epochs in all; a resumed run may be given more.
        estimator: any of swor.ESTIMATORS that applies.
        k: number of samples per image; by default the paper's for the estimator, 4 or 1.
        dims: number of latent variables; the paper has 2 (the small domain) and 20 (the large one).
        categories: number of categories of each.
        data: digits (included with scikit-learn), mnist (thresholded at one half) or
            binarized-mnist.
        data_dir: folder of the data files; by default SWOR_DATA, or else a download.
        batch_size: images per step, shared by all processes.
        learning_rate: of Adam; by default the paper's for the estimator.
        output_bias: what the biases of the decoder's output start from: zero, as in the paper, or
            mean-image, the logits of the mean training image.
    """

    epochs: int = field(default=10, metadata=MAY_CHANGE)
    estimator: Estimator = "unordered_set"
    k: int | None = None
    dims: int = 20
    categories: int = 10
    data: Name = "digits"
    data_dir: Path | None = field(default=None, metadata=MAY_CHANGE)
    batch_size: int = 200
    learning_rate: float | None = None
    output_bias: Literal["zero", "mean-image"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "k", "dims", "batch_size", "learning_rate")
        check_at_least(self, 2, "categories")

    @property
    def samples(self) -> int:
        """The number of samples that is used."""
        return self.k or paper_k(self.estimator)

    @property
    def rate(self) -> float:
        """The learning rate that is used."""
        return self.learning_rate or LEARNING_RATES.get(self.estimator, 1e-3)

    @property
    def domain(self) -> Domain:
        """The data and the outcomes of the latent variable."""
        return Domain(self.data, self.dims, self.categories)


@own_first
@dataclass(frozen=True, kw_only=True)
class VAEVariance(ResumableSettings):
    """Measure the gradient variance of estimators on the kept models of a run.

    The released code of the paper measures with --records 200 --new-minibatch --kl-in-cost, and reports
    encoder and decoder together.

    Attributes:
        run: folder of a run of python -m reproduction vae with --keep-every; the paper trains it with
            --estimator rloo.
        estimators: which to measure; by default those of Table 1.
        k: number of samples at equal k, and of evaluations at equal evaluations.
        repetitions: gradients per estimator on the last model.
        repetitions_before: gradients per estimator on the models before it; by default as many.
        records: size of the minibatch: the first training images.
        new_minibatch: draw another minibatch for every repetition, as the released code of the
            paper does, so that the variance includes that of the data.
        kl_in_cost: make the KL a part of the cost, as the released code of the paper does, which adds
            variance to estimators without a baseline; arsm always has the sampled one there.
        warm_up: steps that train what an estimator learns on the model beforehand.
        warm_up_records: training images of such a step, new ones for each; by default it has the measured
            minibatch.
        epochs: which of the kept models to measure; by default all.
        data_dir: folder of the data files; by default that of the run, SWOR_DATA, or a download.
    """

    run: tyro.conf.Positional[Path]
    estimators: tuple[Estimator, ...] = tuple(PAPER)
    k: int = 4
    repetitions: int = 1000
    repetitions_before: int | None = None
    records: int = 100
    new_minibatch: bool = False
    kl_in_cost: bool = False
    warm_up: int = 500
    warm_up_records: int | None = None
    epochs: tuple[int, ...] = ()
    data_dir: Path | None = field(default=None, metadata=MAY_CHANGE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "k", "records", "warm_up_records")
        check_at_least(self, 0, "warm_up")
        # A variance with a standard error needs three gradients.
        check_at_least(self, 3, "repetitions", "repetitions_before")
        if not self.estimators:
            raise UserError("no estimators were given; expected at least one, or leave them out.")

    @property
    def before(self) -> int:
        """The number of repetitions on the models before the last."""
        return self.repetitions_before or self.repetitions


@own_first
@dataclass(frozen=True, kw_only=True)
class VAEFigures(ComparisonSettings):
    """Plot training and validation curves of runs, and draw images that their models make.

    The runs are those of the command vae, of any data and number of dimensions, or folders that this
    command wrote, in the place of their runs. Runs that differ in their seed alone share an entry of the
    legend and a row of the table.

    Attributes:
        smoothing: number of neighbouring points that the smoothed curves average.
        data_dir: folder of the data files; by default that of the run, SWOR_DATA, or a download.
    """

    smoothing: int = 5
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "smoothing")
