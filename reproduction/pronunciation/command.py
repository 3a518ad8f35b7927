"""The commands ``pronunciation``, ``pronunciation-measure`` and ``pronunciation-figures``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.harness.errors import check_one_of_each
from reproduction.harness.folder import open_folder
from reproduction.harness.measurements import measuring
from reproduction.harness.training import run
from reproduction.pronunciation.figures import curves_figure, measured_figure
from reproduction.pronunciation.measure import COMMAND, Measuring
from reproduction.pronunciation.model import trained_pronouncer
from reproduction.pronunciation.settings import (
    PronunciationFigures,
    PronunciationMeasure,
    PronunciationSettings,
)
from reproduction.pronunciation.tables import pass_table, read_points, samples_table, training_table
from reproduction.pronunciation.task import PronunciationTask


def pronunciation(settings: PronunciationSettings) -> Path:
    """Fine-tune the network, and return the folder of the run."""
    settings = settings.resolved()
    name = f"pronunciation-{settings.estimator}-{settings.objective}"
    return run(lambda: PronunciationTask(settings), settings, command="pronunciation", name=name)


def pronunciation_measure(settings: PronunciationMeasure) -> Path:
    """Measure the network as it is, and return the folder with the tables and the figure."""
    model = trained_pronouncer()  # before there is a folder, since the packages may be missing
    with measuring(settings, COMMAND, COMMAND) as folder:
        groups, variance, passes = Measuring(settings, model, folder).run()
        samples, passed = samples_table(groups, variance), pass_table(passes)
        folder.write_text("samples.md", samples)
        folder.write_text("pass.md", passed)
        folder.write_figure("measured.png", measured_figure(groups, variance, passes))
    print(samples, passed, sep="\n")
    print(f"The tables and the figure are in {folder.path}")
    return folder.path


def pronunciation_figures(settings: PronunciationFigures) -> Path:
    """Compare runs, and return the folder with curves.csv, table.md and curves.png."""
    runs = [read_points(path) for path in settings.runs]
    check_one_of_each((run["method"][0], int(run["seed"][0])) for run in runs)
    points = pd.concat(runs, ignore_index=True)
    table = training_table(points)
    folder = open_folder(settings, "pronunciation-figures", out=settings.out)
    folder.write_csv("curves.csv", points.to_dict("records"))
    folder.write_text("table.md", table)
    folder.write_figure("curves.png", curves_figure(points))
    print(table)
    print(f"The figures are in {folder.path}")
    return folder.path
