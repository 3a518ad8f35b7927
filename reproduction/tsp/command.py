"""The commands on tours: ``tsp`` and those that begin with ``tsp-``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.folder import open_folder, require_new
from reproduction.harness.measurements import do, measuring
from reproduction.harness.models import MODEL, keep_model, kept_models, kept_name
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import with_error
from reproduction.harness.task import seeded
from reproduction.harness.training import run
from reproduction.tsp.best_of_k import Parts, answer, best_of_k_rows, best_of_k_table
from reproduction.tsp.figures import best_of_k_figure, gap_figure, variance_figure
from reproduction.tsp.measurement_settings import (
    TSPBestOfK,
    TSPFigures,
    TSPPaired,
    TSPPretrained,
    TSPVariance,
)
from reproduction.tsp.model import load_attention_model
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.paired import final_gaps, paired_rows, paired_table
from reproduction.tsp.pretrained import RELEASED, read_pretrained, released_file, sha256
from reproduction.tsp.problem import random_instances, validation_instances
from reproduction.tsp.ranking import ranking, ranking_table, read_gaps, read_sampled, sampled_table
from reproduction.tsp.rollout import greedy_lengths
from reproduction.tsp.settings import TSPSettings, check_distinct, with_start
from reproduction.tsp.task import TourTask, gap_of
from reproduction.tsp.variance import REFERENCE, Measuring, Subject, model_to_measure
from reproduction.tsp.variance_tables import variance_tables


def tsp(settings: TSPSettings) -> Path:
    """Train the Attention Model, and return the folder with metrics, checkpoint and model."""
    settings = with_start(settings.resolved())
    name = f"tsp{settings.nodes}-{settings.estimator}"
    return run(lambda: TourTask(settings), settings, command="tsp", name=name)


def tsp_pretrained(settings: TSPPretrained) -> Path:
    """Write a released model to a folder like that of a run, and return the folder."""
    path = settings.file or released_file(settings.nodes)
    model, found = read_pretrained(path), sha256(path)
    about = "the released file" if found == RELEASED.get(settings.nodes) else "not the released one"
    print(f"{path} has the SHA-256 {found} ({about}).")
    like = TSPSettings(nodes=settings.nodes, estimator="reinforce_rollout", model=model.settings)
    folder = open_folder(like.resolved(), f"tsp{settings.nodes}-pretrained", out=settings.out)
    for name in (MODEL, f"models/{kept_name('step', like.steps)}"):
        keep_model(folder.path / name, model, model.settings)
    if settings.validation_size:
        about_it = {"nodes": settings.nodes, "instances": settings.validation_size, "sha256": found}
        instances = validation_instances(settings.validation_size, settings.nodes)
        gap = gap_of(greedy_lengths(model, instances), optimal_lengths(instances, progress=True))
        folder.write_csv("validation.csv", [about_it | gap])
        measured = with_error(gap["gap"], gap["gap_standard_error"])
        print(f"Greedy tours are {measured} % longer than optimal ones.")
    print(f"The model is in {folder.path}")
    return folder.path


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
        figure = variance_figure(*tables, trained_with=trained_with)
        folder.write_figure("variance.png", figure)
    print(f"The table is {folder.path / 'variance.md'}")
    return folder.path


def tsp_best_of_k(settings: TSPBestOfK) -> Path:
    """Find the best of k tours of validation instances, and return the folder with table and figure."""
    model = load_attention_model(settings.model)
    instances = validation_instances(settings.instances, settings.nodes)
    with measuring(settings, "tsp-best-of-k", f"tsp{settings.nodes}-best-of-k") as folder:
        parts = Parts(settings, model, instances, folder)
        do(parts.jobs())
        table = pd.DataFrame(best_of_k_rows(settings, *parts.read(), instances))
        folder.write_csv("best_of_k.csv", table.to_dict("records"))
        folder.write_text("best_of_k.md", best_of_k_table(table))
        folder.write_text("answer.md", answer(table))
        folder.write_figure("best_of_k.png", best_of_k_figure(table))
    print(best_of_k_table(table), answer(table), sep="\n")
    print(f"The table and the figure are in {folder.path}")
    return folder.path


def tsp_figures(settings: TSPFigures) -> Path:
    """Write the tables (gaps, ranking, sampled tours) and the figures, and return their folder."""
    gaps = read_gaps(settings.runs)
    ranked = ranking(gaps)
    place = {name: number for number, name in enumerate(ranked["estimator"])}
    sampled = read_sampled(settings.runs, int(ranked["steps"].min()))
    sampled.sort(key=lambda row: place[row.estimator])
    folder = open_folder(settings, "tsp-figures", out=settings.out)
    folder.write_csv("gaps.csv", gaps.to_dict("records"))
    folder.write_csv("ranking.csv", ranked.to_dict("records"))
    folder.write_text("ranking.md", ranking_table(ranked))
    if sampled:
        folder.write_csv("sampled.csv", [row._asdict() for row in sampled])
        folder.write_text("sampled.md", sampled_table(sampled))
    for axis in ("steps", "instances"):
        folder.write_figure(f"gap-{axis}.png", gap_figure(gaps, axis))
    print(ranked.to_string(index=False))
    print(f"The figures are in {folder.path}")
    return folder.path


def tsp_paired(settings: TSPPaired) -> Path:
    """Compare runs on the same instances, and return the folder with the tables."""
    if settings.out is not None:
        require_new(settings.out)
    found = final_gaps(settings.runs, settings.instances)
    folder = open_folder(settings, "tsp-paired", out=settings.out)
    found.write(folder.path)
    rows = paired_rows(found.runs, found.start)
    folder.write_csv("paired.csv", [row._asdict() for row in rows])
    table = paired_table(found.runs, found.start)
    folder.write_text("paired.md", table)
    print(table)
    print(f"The tables are in {folder.path}")
    return folder.path
