"""The commands ``vae``, ``vae-variance`` and ``vae-figures``: train, measure and compare models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
from accelerate import PartialState

from reproduction.harness.appearance import appearance
from reproduction.harness.errors import UserError
from reproduction.harness.folder import open_folder
from reproduction.harness.images import load
from reproduction.harness.measurements import measuring
from reproduction.harness.models import kept_models
from reproduction.harness.settings import read_settings
from reproduction.harness.training import run
from reproduction.vae.curves import CURVES, elbo_table, is_run, read_curves, short_names
from reproduction.vae.figures import curves_figure, images_figure, variance_figure
from reproduction.vae.settings import VAEFigures, VAESettings, VAEVariance
from reproduction.vae.task import VAETask, check_applies, make_vae
from reproduction.vae.variance import Subject, cases, comparisons, measure, measure_times
from reproduction.vae.variance_table import variance_table


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
        todo = cases(settings, compared, tuple(models))
        measure_times(settings, subject, todo, folder)
        measured = measure(settings, subject, todo, folder)
    at_last = [m for m in measured if m.epoch == max(models)]
    folder.write_text("variance.md", variance_table(compared, at_last, trained.domain, settings))
    trained_with = f"{appearance(trained.estimator).label}, k = {trained.samples}"
    folder.write_figure("variance.png", variance_figure(pd.DataFrame(measured), trained_with))
    print(f"The table is {folder.path / 'variance.md'}")
    return folder.path


def vae_figures(settings: VAEFigures) -> Path:
    """Plot runs, and return the folder with curves.csv, .md and .png, and a picture of each run."""
    points = read_curves(settings.runs, settings.smoothing)
    runs = zip(short_names(settings.runs), settings.runs, strict=True)
    images = {n: images_figure(path, settings.data_dir) for n, path in runs if is_run(path)}
    folder = open_folder(settings, "vae-figures", out=settings.out)
    folder.write_csv(CURVES, points.to_dict("records"))
    folder.write_text("curves.md", elbo_table(points))
    folder.write_figure("curves.png", curves_figure(points, settings.smoothing))
    for name, figure in images.items():
        folder.write_figure(f"images-{name}.png", figure)
    print(f"The figures are in {folder.path}")
    return folder.path
