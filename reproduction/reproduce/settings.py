"""Settings of the command ``reproduce``, and the two sizes in which it runs the experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reproduction.harness.errors import UserError
from reproduction.harness.images import Name

Backend = Literal["local", "ray", "dask"]


@dataclass(frozen=True)
class Settings:
    """Reproduce the paper: Figure 1, the VAE, the travelling salesman, verdicts on claims, and a report.

    Without options this takes a few minutes and needs no network. Steps that have succeeded are not
    run again, so the same command continues a run that was interrupted.
    """

    full: bool = False
    """run the paper's sizes, which takes weeks of computation; see --plan"""
    plan: bool = False
    """list the steps and their estimated durations, and run nothing"""
    jobs: int | None = None
    """number of processes, each with one thread; by default one per core"""
    backend: Backend = "local"
    """where the processes run: on this machine (local), or on a Ray or Dask cluster"""
    address: str | None = None
    """address of the Ray or Dask cluster; by default a new cluster is started on this machine"""
    data_dir: Path | None = None
    """folder of the MNIST files, for --full; by default SWOR_DATA, or else a download"""
    out: Path | None = None
    """folder of the results; by default runs/reproduce, or runs/reproduce-full with --full"""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(
                f"jobs is {self.jobs}; expected at least 1. Leave out --jobs to use all cores."
            )
        if self.address is not None and self.backend == "local":
            raise UserError(
                f"address is {self.address}, but the backend is local, which uses this machine only; "
                "expected no address. Give --backend ray or --backend dask, or leave out --address."
            )

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.out or Path("runs") / ("reproduce-full" if self.full else "reproduce")

    @property
    def processes(self) -> int:
        """The number of processes."""
        from joblib import cpu_count

        return self.jobs or int(cpu_count())


@dataclass(frozen=True)
class Sizes:
    """Sizes of all experiments."""

    repeats: int  # sampled gradients per variance in the Monte Carlo check of Figure 1
    data: tuple[Name, ...]  # data sets of the VAE
    dims: tuple[int, ...]  # numbers of latent variables of the VAE
    curves: tuple[tuple[str, int], ...]  # estimators that train a VAE, each with its k
    epochs: int  # of the VAE
    batch_size: int  # of the VAE
    keep_every: int  # epochs between the models on which the gradient variance is measured
    repetitions: int  # gradients per estimator on the last of these models
    repetitions_before: int  # gradients per estimator on the earlier models
    warm_up: int  # steps that train the learned part of an estimator before it is measured
    all_estimators: bool  # measure all applicable estimators instead of those of Table 1
    seeds: tuple[int, ...]  # of the training runs
    nodes: int  # of a travelling salesman problem
    tours: int  # in a batch, which has k tours of each of tours / k instances
    steps: int  # of training the travelling salesman
    validate_every: int  # steps between validations
    validation_size: int  # validation instances
    learning_rate: float  # of the travelling salesman

    @property
    def short(self) -> bool:
        """Whether this is a short run, which trains the VAE on other data than the paper."""
        return "digits" in self.data


REFERENCE = ("rloo", 4)
"""Estimator and k that train the model on which the variance of all estimators is measured."""

SINGLE_SAMPLE = (
    ("reinforce_shared_sampled_baseline", 1),
    ("straight_through", 1),
    ("relax", 1),
    ("arsm", 1),
)

SHORT = Sizes(
    repeats=2000,
    data=("digits",),
    dims=(2,),
    curves=(
        REFERENCE,
        ("unordered_set", 4),
        ("sum_and_sample_shared_sampled_baseline", 4),
        *SINGLE_SAMPLE,
    ),
    epochs=100,
    batch_size=100,
    keep_every=50,
    repetitions=100,
    repetitions_before=40,
    warm_up=200,
    all_estimators=True,
    seeds=(0,),
    nodes=10,
    tours=256,
    steps=300,
    validate_every=30,
    validation_size=1000,
    learning_rate=5e-4,
)

FULL = Sizes(
    repeats=10_000,
    data=("mnist", "binarized-mnist"),
    dims=(2, 20),
    curves=(
        REFERENCE,
        ("rloo", 8),
        ("unordered_set", 4),
        ("unordered_set", 8),
        ("sum_and_sample_shared_sampled_baseline", 4),
        ("sum_and_sample_shared_sampled_baseline", 8),
        *SINGLE_SAMPLE,
    ),
    epochs=1000,
    batch_size=200,
    keep_every=100,
    repetitions=1000,
    repetitions_before=1000,
    warm_up=500,
    all_estimators=False,
    seeds=(0, 1),
    nodes=20,
    tours=512,
    steps=250_000,
    validate_every=2500,
    validation_size=10_000,
    learning_rate=1e-4,
)
