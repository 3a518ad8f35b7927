"""``swor vae``: train the categorical VAE with an estimator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swor.experiments.data import load
from swor.experiments.run import run
from swor.experiments.training import main_first
from swor.experiments.vae.methods import Method
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.task import VAETask


def vae(settings: VAE) -> Path:
    """Train, and return the folder of the run.

    Args:
        settings: of the run; with ``resume``, those of the run with what may change.
    """
    settings = replace(settings, k=settings.samples)
    n, c = settings.dims, settings.categories
    Method(settings.estimator, n, c).check(n, c, settings.samples)
    images = main_first(lambda: load(settings.data, settings.data_dir), cpu=settings.cpu)
    task = VAETask(settings, images)
    name = f"vae-{settings.data}-{settings.dims}-{settings.estimator}"
    return run(task, settings, command="vae", name=name, resume=settings.resume, out=settings.out)
