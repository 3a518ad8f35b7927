"""The commands ``tsp`` and ``tsp-variance``: train a model, and measure gradients on the way."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from reproduction.harness.appearance import appearance
from reproduction.harness.errors import UserError
from reproduction.harness.measurements import measuring
from reproduction.harness.models import kept_models, kept_settings
from reproduction.harness.settings import read_settings
from reproduction.harness.task import seeded
from reproduction.harness.training import run
from reproduction.tsp.problem import random_instances
from reproduction.tsp.settings import ModelSettings, TSPSettings, TSPVariance, check_distinct
from reproduction.tsp.task import TourTask
from reproduction.tsp.variance import REFERENCE, Measuring, Subject, model_to_measure
from reproduction.tsp.variance_tables import variance_figure, variance_tables


def tsp(settings: TSPSettings) -> Path:
    """Train the Attention Model, and return the folder with metrics, checkpoint and model."""
    settings = with_start(settings.resolved())
    name = f"tsp{settings.nodes}-{settings.estimator}"
    return run(lambda: TourTask(settings), settings, command="tsp", name=name)


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
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if settings.start_sha256 not in (None, found):
        raise UserError(
            f"{path} has changed since the run was started: its SHA-256 is {found}; expected "
            f"{settings.start_sha256}. Restore the file, or start another run."
        )
    return replace(settings, start_sha256=found)


def tsp_variance(settings: TSPVariance) -> Path:
    """Measure gradient variances, and return the folder with the tables and variance.png."""
    trained = read_settings(TSPSettings, settings.run)
    check_distinct(REFERENCE, settings.k, trained.nodes)
    models = kept_models(settings.run, "step", settings.steps)
    generator = seeded(settings.seed, "instances")
    instances = random_instances(settings.batch_size, trained.nodes, generator=generator)
    with measuring(settings, "tsp-variance", f"{settings.run.name}-variance") as folder:
        subject = Subject(model_to_measure(trained.model), models, instances)
        tables = Measuring(settings, subject, folder).run()
        folder.write_text("variance.md", variance_tables(settings, *tables))
        trained_with = appearance(trained.estimator).label
        folder.write_figure("variance.png", variance_figure(*tables, trained_with))
    print(f"The table is {folder.path / 'variance.md'}")
    return folder.path
