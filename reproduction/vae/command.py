"""The commands ``vae`` and ``vae-variance``: train a model, and measure gradients on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
from accelerate import PartialState

from reproduction.harness.appearance import appearance
from reproduction.harness.errors import UserError
from reproduction.harness.images import load
from reproduction.harness.measurements import measuring
from reproduction.harness.models import kept_models
from reproduction.harness.settings import read_settings
from reproduction.harness.training import run
from reproduction.vae.figures import variance_figure
from reproduction.vae.settings import VAESettings, VAEVariance
from reproduction.vae.task import VAETask, check_applies, make_vae
from reproduction.vae.variance import Subject, cases, comparisons, measure, variance_table


def vae(settings: VAESettings) -> Path:
    """Train the VAE, and return the folder of the run."""
    settings = replace(settings, k=settings.samples)
    check_applies(settings.estimator, settings.dims, settings.categories, settings.samples)

    def task() -> VAETask:
        with PartialState().main_process_first():  # which may have to download them
            return VAETask(settings, load(settings.data, settings.data_dir))

    name = f"vae-{settings.data}-{settings.dims}-{settings.estimator}"
    return run(task, settings, command="vae", name=name)


def vae_variance(settings: VAEVariance) -> Path:
    """Measure gradient variances, and return the folder with variance.csv, variance.md and variance.png."""
    trained = read_settings(VAESettings, settings.run)
    models = kept_models(settings.run, "epoch", settings.epochs)
    images = load(trained.data, settings.data_dir or trained.data_dir).train
    if settings.records > len(images):
        raise UserError(
            f"records is {settings.records}; expected at most the {len(images)} training images."
        )
    compared = comparisons(settings, trained)
    with measuring(settings, "vae-variance", f"{settings.run.name}-variance") as folder:
        subject = Subject(make_vae(trained, images.shape[-1]), images, models, trained.domain)
        measured = measure(settings, subject, cases(settings, compared, tuple(models)), folder)
    at_last = [m for m in measured if m.epoch == max(models)]
    folder.write_text("variance.md", variance_table(compared, at_last, trained.domain, settings))
    trained_with = f"{appearance(trained.estimator).label}, k = {trained.samples}"
    folder.write_figure("variance.png", variance_figure(pd.DataFrame(measured), trained_with))
    print(f"The table is {folder.path / 'variance.md'}")
    return folder.path
