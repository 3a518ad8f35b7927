"""The steps of a reproduction: their functions, needs and durations, and the tables that they write.

A step writes its results into a folder of its own, beside the folders of the steps that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from reproduction.bernoulli.command import BernoulliSettings, bernoulli
from reproduction.claims.claim import Tables
from reproduction.harness.errors import UserError
from reproduction.harness.folder import create
from reproduction.harness.images import Name
from reproduction.reproduce.rules import rule_rows
from reproduction.reproduce.settings import REFERENCE, Sizes
from reproduction.tsp.command import tsp
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.problem import validation_instances
from reproduction.tsp.ranking import TSPFigures, tsp_figures
from reproduction.tsp.settings import SINGLE, TSPSettings
from reproduction.tsp.task import TOUR_ESTIMATORS
from reproduction.vae.command import vae, vae_variance
from reproduction.vae.figures import VAEFigures, vae_figures
from reproduction.vae.published import PAPER
from reproduction.vae.settings import METHODS, VAESettings, VAEVariance
from reproduction.vae.task import check_applies
from reproduction.vae.variance import TABLE

RESUMABLE = ("checkpoint.pt", TABLE)
"""Files from which an interrupted step continues. A folder without any of them starts again."""

# Rough durations in seconds, on one core of a common machine.
VAE_EPOCH = {"digits": 0.25, "mnist": 16.0, "binarized-mnist": 15.0}
SLOWDOWN = {"arsm": 6.0}  # of an epoch, for an estimator that evaluates the cost very often
VAE_GRADIENT = {"digits": 0.02, "mnist": 0.03, "binarized-mnist": 0.03}  # of 100 images
TSP_STEP = 0.4  # with 512 tours of 20 nodes
SHORTEST_TOUR = 0.0018  # times the number of nodes


@dataclass(frozen=True)
class Step:
    """A part of the reproduction, which is done once.

    Attributes:
        name: name of the step and of its folder.
        run: function that writes the results into the folder that it is given.
        seconds: rough duration on one core.
        needs: names of the steps whose folders it reads.
    """

    name: str
    run: Callable[[Path], None]
    seconds: float
    needs: tuple[str, ...] = ()


def all_steps(sizes: Sizes, data_dir: Path | None = None) -> list[Step]:
    """Return the steps of a reproduction, each after the steps that it needs."""
    return [
        Step("rules", measure_rules, 5.0),
        Step("bernoulli", partial(draw_figure1, sizes.repeats), 15.0),
        *vae_steps(sizes, data_dir),
        *tsp_steps(sizes),
    ]


def folder_option(out: Path) -> dict[str, Any]:
    """Return the option that continues in a folder, if it has something to continue, or begins there."""
    return {"resume" if any((out / name).exists() for name in RESUMABLE) else "out": out}


def measure_rules(out: Path) -> None:
    """Compute the exact bias and variance of every rule on a small domain."""
    create(out).write_csv("rules.csv", rule_rows())


def draw_figure1(repeats: int, out: Path) -> None:
    """Compute Figure 1, its Monte Carlo check and the optimisation."""
    bernoulli(BernoulliSettings(repeats=repeats, out=out))


def vae_steps(sizes: Sizes, data_dir: Path | None) -> Iterator[Step]:
    """Train with every estimator, measure the variance on the reference run, and draw the curves."""
    for data, dims in product(sizes.data, sizes.dims):
        runs = [
            vae_settings(sizes, data, dims, curve, seed, data_dir)
            for curve, seed in product(sizes.curves, sizes.seeds)
        ]
        names = tuple(map(vae_name, runs))
        for name, run in zip(names, runs, strict=True):
            seconds = run.epochs * VAE_EPOCH[data] * SLOWDOWN.get(run.estimator, 1.0)
            yield Step(name, partial(train_vae, run), seconds)
        first = vae_name(vae_settings(sizes, data, dims, REFERENCE, sizes.seeds[0], data_dir))
        measure = partial(measure_variance, sizes, dims, data_dir, first)
        yield Step(f"variance-{data}-{dims}", measure, variance_seconds(sizes, data), (first,))
        draw = partial(draw_vae, names, data_dir)
        yield Step(f"curves-{data}-{dims}", draw, 10.0 + len(names), names)


def vae_settings(
    sizes: Sizes, data: Name, dims: int, curve: tuple[str, int], seed: int, data_dir: Path | None
) -> VAESettings:
    """Return the settings of a training run of the VAE."""
    return VAESettings(
        estimator=curve[0],
        k=curve[1],
        dims=dims,
        data=data,
        data_dir=data_dir,
        batch_size=sizes.batch_size,
        epochs=sizes.epochs,
        seed=seed,
        keep_every=sizes.keep_every if curve == REFERENCE else 0,
        log_every=10 if data == "digits" else 100,
    )


def vae_name(run: VAESettings) -> str:
    """Return the name of the step of a training run."""
    return f"vae-{run.data}-{run.dims}-{run.estimator}-{run.k}-seed{run.seed}"


def train_vae(settings: VAESettings, out: Path) -> None:
    """Train the VAE, from the checkpoint if there is one."""
    vae(replace(settings, **folder_option(out)))


def measure_variance(
    sizes: Sizes, dims: int, data_dir: Path | None, reference: str, out: Path
) -> None:
    """Measure the gradient variance on the models that a training run has kept."""
    settings = VAEVariance(
        run=out.parent / reference,
        estimators=applicable(dims) if sizes.all_estimators else tuple(PAPER),
        repetitions=sizes.repetitions,
        repetitions_before=sizes.repetitions_before,
        warm_up=sizes.warm_up,
        epochs=tuple(range(sizes.keep_every, sizes.epochs + 1, sizes.keep_every)),
        data_dir=data_dir,
    )
    vae_variance(replace(settings, **folder_option(out)))


def applicable(dims: int, categories: int = 10, k: int = 4) -> tuple[str, ...]:
    """Return the estimators of Table 1, followed by all others that are defined for the VAE."""
    names = []
    for name in METHODS:
        try:
            check_applies(name, dims, categories, k)
        except UserError:
            continue
        names.append(name)
    return (*PAPER, *(name for name in names if name not in PAPER))


def variance_seconds(sizes: Sizes, data: str) -> float:
    """Estimate the duration of a measurement, which uses about two values of k per estimator."""
    earlier_models = sizes.epochs // sizes.keep_every - 1
    cases = 29 if sizes.all_estimators else 8
    gradients = 2 * (sizes.repetitions + earlier_models * sizes.repetitions_before)
    return cases * gradients * VAE_GRADIENT[data]


def draw_vae(runs: tuple[str, ...], data_dir: Path | None, out: Path) -> None:
    """Draw the curves and the images of training runs."""
    folders = tuple(out.parent / run for run in runs)
    vae_figures(VAEFigures(runs=folders, data_dir=data_dir, out=out))


def tsp_steps(sizes: Sizes) -> Iterator[Step]:
    """Solve the validation instances, train with every estimator, and draw the gaps."""
    solved = f"tsp{sizes.nodes}-shortest"
    solve = partial(solve_instances, sizes.validation_size, sizes.nodes)
    yield Step(solved, solve, sizes.validation_size * SHORTEST_TOUR * sizes.nodes)
    seconds = sizes.steps * TSP_STEP * sizes.tours / 512 * sizes.nodes / 20
    runs = []
    for name, seed in product(TOUR_ESTIMATORS, sizes.seeds):
        runs.append(f"tsp{sizes.nodes}-{name}-seed{seed}")
        train = partial(train_tsp, tsp_settings(sizes, name, seed))
        yield Step(runs[-1], train, seconds, (solved,))
    yield Step(f"tsp{sizes.nodes}-figures", partial(draw_tsp, tuple(runs)), 10.0, tuple(runs))


def tsp_settings(sizes: Sizes, estimator: str, seed: int) -> TSPSettings:
    """Return the settings of a training run of the travelling salesman."""
    return TSPSettings(
        nodes=sizes.nodes,
        estimator=estimator,  # type: ignore[arg-type]
        steps=sizes.steps,
        batch_size=sizes.tours // (1 if estimator in SINGLE else 4),
        learning_rate=sizes.learning_rate,
        validate_every=sizes.validate_every,
        validation_size=sizes.validation_size,
        rollout_size=sizes.validation_size,
        seed=seed,
    )


def solve_instances(size: int, nodes: int, out: Path) -> None:
    """Solve the validation instances once, for all training runs to compare themselves with."""
    lengths = optimal_lengths(validation_instances(size, nodes), progress=True)
    row = {"nodes": nodes, "instances": size, "mean_length": float(lengths.mean())}
    create(out).write_csv("shortest.csv", [row])


def train_tsp(settings: TSPSettings, out: Path) -> None:
    """Train the travelling salesman, from the checkpoint if there is one."""
    tsp(replace(settings, **folder_option(out)))


def draw_tsp(runs: tuple[str, ...], out: Path) -> None:
    """Draw the optimality gaps of training runs."""
    tsp_figures(TSPFigures(runs=tuple(out.parent / run for run in runs), out=out))


def tables(folder: Path, sizes: Sizes) -> Tables:
    """Return the tables of a reproduction by the names that claims use."""
    paths = {"rules": "rules/rules.csv", "tsp": f"tsp{sizes.nodes}-figures/gaps.csv"}
    for name in ("variances", "trajectory", "monte_carlo"):
        paths[name.replace("_", "-")] = f"bernoulli/{name}.csv"
    for dims in sizes.dims:
        variance = f"variance-{sizes.data[0]}-{dims}/variance.csv"
        paths |= {f"variance-{dims}": variance, f"variance-{dims}-all": variance}
        paths[f"curves-{dims}"] = f"curves-{sizes.data[0]}-{dims}/curves.csv"
    if not sizes.short:
        paths["curves-20-long"] = paths["curves-20"]
    return Tables({name: folder / path for name, path in paths.items()}, short=sizes.short)
