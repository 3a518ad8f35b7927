"""The settings of the VAE experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from swor.experiments.data import Name
from swor.experiments.errors import UserError, check_positive
from swor.experiments.resume import MAY_CHANGE
from swor.experiments.task import Training
from swor.experiments.vae.methods import LEARNING_RATES, check_name
from swor.experiments.vae.published import Domain, paper_k


@dataclass(frozen=True, kw_only=True)
class VAE(Training):
    """Train the categorical VAE.

    Attributes:
        estimator: any of swor.ESTIMATORS that applies.
        k: number of samples per image; by default the paper's for the estimator, 4 or 1.
        dims: number of latent variables; the paper has 2 (the small domain) and 20 (the large).
        categories: number of categories of each.
        data: digits (comes along), mnist (thresholded at one half) or binarized-mnist.
        data_dir: folder of the data files; by default SWOR_DATA, or else a download.
        batch_size: images per step, shared by all processes.
        learning_rate: of Adam; by default the paper's for the estimator.
        out: folder of the run; by default a new one in runs/.
        resume: folder of a run to continue; its settings become the defaults.
    """

    estimator: str = "unordered_set"
    k: int | None = None
    dims: int = 20
    categories: int = 10
    data: Name = "digits"
    data_dir: Path | None = field(default=None, metadata=MAY_CHANGE)
    batch_size: int = 200
    learning_rate: float | None = None
    out: Path | None = field(default=None, metadata=MAY_CHANGE)
    resume: Path | None = field(default=None, metadata=MAY_CHANGE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.estimator)
        check_positive(self, "k", "dims", "batch_size", "learning_rate")
        if self.categories < 2:
            raise UserError(f"categories is {self.categories}; expected at least 2.")

    @property
    def samples(self) -> int:
        """The number of samples that is used."""
        return paper_k(self.estimator) if self.k is None else self.k

    @property
    def domain(self) -> Domain:
        """What is trained on."""
        return Domain(self.data, self.dims, self.categories)

    @property
    def rate(self) -> float:
        """The learning rate that is used."""
        if self.learning_rate is not None:
            return self.learning_rate
        return LEARNING_RATES.get(self.estimator, 1e-3)
