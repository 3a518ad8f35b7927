"""What the steps do: each writes its results into the folder that it is given.

A training run that was stopped continues from its checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swor.experiments.bernoulli.command import bernoulli
from swor.experiments.bernoulli.settings import BernoulliSettings
from swor.experiments.runs.errors import UserError
from swor.experiments.runs.folder import create
from swor.experiments.reproduce.rules import rule_rows
from swor.experiments.reproduce.sizes import Sizes
from swor.experiments.tsp.command import tsp, tsp_figures
from swor.experiments.tsp.problem import validation_instances
from swor.experiments.tsp.settings import TSPFigures, TSPSettings
from swor.experiments.tsp.solver import optimal_lengths
from swor.experiments.vae.command import vae, vae_figures, vae_variance
from swor.experiments.vae.published import PAPER
from swor.experiments.vae.settings import METHODS, VAEFigures, VAESettings, VAEVariance
from swor.experiments.vae.task import check_applies
from swor.experiments.vae.variance import TABLE

CHECKPOINT = "checkpoint.pt"
RESUMABLE = (CHECKPOINT, TABLE)
"""Files from which a step that was stopped continues; without one of them it starts again."""


def rules(out: Path) -> None:
    """Exact bias and variance of every rule on a small domain."""
    create(out).write_csv("rules.csv", rule_rows())


def figure1(settings: BernoulliSettings, out: Path) -> None:
    """Figure 1, its Monte Carlo check and the optimisation."""
    bernoulli(replace(settings, out=out))


def train_vae(settings: VAESettings, out: Path) -> None:
    """A training run of the VAE."""
    stopped = (out / CHECKPOINT).exists()
    vae(replace(settings, resume=out) if stopped else replace(settings, out=out))


def measure_variance(
    sizes: Sizes, dims: int, data_dir: Path | None, reference: str, out: Path
) -> None:
    """The gradient variance on the models of a run beside it."""
    settings = VAEVariance(
        run=out.parent / reference,
        estimators=applicable(dims) if sizes.all_estimators else tuple(PAPER),
        repetitions=sizes.repetitions,
        repetitions_before=sizes.repetitions_before,
        control_steps=sizes.control_steps,
        epochs=tuple(range(sizes.keep_every, sizes.epochs + 1, sizes.keep_every)),
        data_dir=data_dir,
    )
    stopped = (out / TABLE).exists()
    vae_variance(replace(settings, resume=out) if stopped else replace(settings, out=out))


def applicable(dims: int, categories: int = 10, k: int = 4) -> tuple[str, ...]:
    """The estimators of Table 1, then all others that are defined for the VAE."""
    names = []
    for name in METHODS:
        try:
            check_applies(name, dims, categories, k)
        except UserError:
            continue
        names.append(name)
    return (*PAPER, *(name for name in names if name not in PAPER))


def draw_vae(runs: tuple[str, ...], data_dir: Path | None, out: Path) -> None:
    """The curves and pictures of training runs beside it."""
    folders = tuple(out.parent / run for run in runs)
    vae_figures(VAEFigures(runs=folders, data_dir=data_dir, out=out))


def shortest_tours(size: int, nodes: int, out: Path) -> None:
    """Solve the validation instances, which every training run compares itself with."""
    lengths = optimal_lengths(validation_instances(size, nodes), progress=True)
    row = {"nodes": nodes, "instances": size, "mean_length": float(lengths.mean())}
    create(out).write_csv("shortest.csv", [row])


def train_tsp(settings: TSPSettings, out: Path) -> None:
    """A training run of the travelling salesman."""
    stopped = (out / CHECKPOINT).exists()
    tsp(replace(settings, resume=out) if stopped else replace(settings, out=out))


def draw_tsp(runs: tuple[str, ...], out: Path) -> None:
    """The gaps of training runs beside it."""
    tsp_figures(TSPFigures(runs=tuple(out.parent / run for run in runs), out=out))
