"""Settings of ``swor reproduce``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Backend = Literal["loky", "ray", "dask"]


@dataclass(frozen=True)
class Settings:
    """Reproduce the paper: Figure 1, the VAE, the travelling salesman, and a report on all of them.

    Without options this takes a few minutes and needs no network. What is done is not done again:
    give the same command to continue.
    """

    full: bool = False
    """the paper's sizes: weeks of computation; see --plan"""
    plan: bool = False
    """say what would be run and how long it takes, and stop"""
    jobs: int | None = None
    """processes, each with one thread; by default one for each core"""
    backend: Backend = "loky"
    """what runs the processes: this machine (loky), or a Ray or Dask cluster"""
    address: str | None = None
    """of the Ray or Dask cluster; by default a new one on this machine"""
    data_dir: Path | None = None
    """folder of the MNIST files, for --full; by default SWOR_DATA, or else a download"""
    out: Path | None = None
    """folder of the results; runs/reproduce, or runs/reproduce-full"""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(
                f"jobs is {self.jobs}; expected at least 1. Leave it out for all cores."
            )
        if self.address is not None and self.backend == "loky":
            raise ValueError(
                f"address is {self.address}, but loky runs on this machine alone; expected no "
                "address. Give --backend ray or --backend dask, or leave out --address."
            )

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self.out or Path("runs") / ("reproduce-full" if self.full else "reproduce")

    @property
    def processes(self) -> int:
        """How many processes there are."""
        from joblib import cpu_count

        return self.jobs or int(cpu_count())
