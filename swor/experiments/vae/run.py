"""``swor vae``: train the categorical VAE with an estimator."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.data import load
from swor.experiments.run import run
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.task import VAETask


def vae(settings: VAE) -> Path:
    """Train, and return the folder of the run.

    Args:
        settings: of the run; with ``resume``, those of the run with what may change.
    """
    task = VAETask(settings, load(settings.data, settings.data_dir))
    name = f"vae-{settings.data}-{settings.dims}-{settings.estimator}"
    return run(task, settings, command="vae", name=name, resume=settings.resume, out=settings.out)
