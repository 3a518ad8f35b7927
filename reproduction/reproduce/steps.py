"""The steps of a reproduction: commands in the two sizes of a run, and the tables that they write.

A step writes its results into a folder of its own, beside the folders of the steps that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from reproduction.claims.claim import Tables
from reproduction.harness.errors import UserError
from reproduction.tsp.settings import SINGLE
from reproduction.tsp.task import TOUR_ESTIMATORS
from reproduction.vae.published import PAPER
from reproduction.vae.settings import METHODS
from reproduction.vae.task import check_applies

Options = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A part of the reproduction, which is done once.

    Attributes:
        name: name of the step and of its folder.
        arguments: those of ``python -m reproduction``, without the folder.
        seconds: rough duration on one core.
        needs: names of the steps whose folders it reads.
    """

    name: str
    arguments: tuple[str, ...]
    seconds: float
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sizes:
    """Sizes of all experiments.

    Attributes:
        data: data sets of the VAE.
        dims: numbers of latent variables of the VAE.
        curves: estimators that train a VAE, each with its k. The variance of all estimators is
            measured on the models that the first of them trains.
        seeds: of the training runs.
        tours: in a batch of the travelling salesman, which has k tours of each of tours / k instances.
        keep_every: epochs between the models on which the variance is measured.
        bernoulli: options of the command.
        vae: options of the command.
        variance: options of the command ``vae-variance``.
        tsp: options of the command.
        seconds: rough durations of ``vae``, ``variance`` and ``tsp`` on one core.
    """

    data: tuple[str, ...]
    dims: tuple[int, ...]
    curves: tuple[tuple[str, int], ...]
    seeds: tuple[int, ...]
    tours: int
    keep_every: int
    bernoulli: Options
    vae: Options
    variance: Options
    tsp: Options
    seconds: Mapping[str, float]

    @property
    def short(self) -> bool:
        """Whether this is a short run, which trains the VAE on other data than the paper."""
        return "digits" in self.data


def applicable(dims: int, categories: int = 10, k: int = 4) -> tuple[str, ...]:
    """Return the estimators of Table 1, followed by all others that are defined for the VAE."""
    names = list(PAPER)
    for name in METHODS:
        try:
            check_applies(name, dims, categories, k)
        except UserError:
            continue
        names += [name] if name not in PAPER else []
    return tuple(names)


SAMPLES = {
    "rloo": (4, 8),
    "unordered_set": (4, 8),
    "sum_and_sample_shared_sampled_baseline": (4, 8),
    "reinforce_shared_sampled_baseline": (1,),
    "straight_through": (1,),
    "relax": (1,),
    "arsm": (1,),
}
"""Estimators of Figure 2, with the numbers of samples of the paper."""

SHORT = Sizes(
    data=("digits",),
    dims=(2,),
    curves=tuple((name, numbers[0]) for name, numbers in SAMPLES.items()),
    seeds=(0,),
    tours=256,
    keep_every=50,
    bernoulli={"repeats": 2000},
    vae={"epochs": 100, "batch_size": 100, "log_every": 10},
    variance={"repetitions": 100, "repetitions_before": 40, "warm_up": 200, "epochs": (50, 100)}
    | {"estimators": applicable(2)},
    tsp={"nodes": 10, "steps": 300, "validate_every": 30, "learning_rate": 5e-4}
    | {"validation_size": 1000, "rollout_size": 1000},
    seconds={"vae": 25.0, "variance": 160.0, "tsp": 40.0},
)

FULL = Sizes(
    data=("mnist", "binarized-mnist"),
    dims=(2, 20),
    curves=tuple((name, k) for name, numbers in SAMPLES.items() for k in numbers),
    seeds=(0, 1),
    tours=512,
    keep_every=100,
    bernoulli={"repeats": 10_000},
    vae={"epochs": 1000, "batch_size": 200},
    variance={"repetitions": 1000, "warm_up": 500, "epochs": tuple(range(100, 1001, 100))},
    tsp={"nodes": 20, "steps": 250_000, "validate_every": 2500, "learning_rate": 1e-4}
    | {"validation_size": 10_000, "rollout_size": 10_000},
    seconds={"vae": 16_000.0, "variance": 4800.0, "tsp": 100_000.0},
)

SLOWDOWN = {"arsm": 6.0}  # of training, for an estimator that evaluates the cost very often


def all_steps(sizes: Sizes, folder: Path, data_dir: Path | None = None) -> list[Step]:
    """Return the steps of a reproduction in a folder, each after the steps that it needs."""
    return [
        Step("rules", ("rules",), 5.0),
        Step("bernoulli", ("bernoulli", *arguments(sizes.bernoulli)), 15.0),
        *vae_steps(sizes, folder, {} if data_dir is None else {"data_dir": data_dir}),
        *tsp_steps(sizes, folder),
    ]


def arguments(options: Options) -> Iterator[str]:
    """Yield options as they are given on the command line.

    >>> list(arguments({"warm_up": 200, "epochs": (50, 100)}))
    ['--warm-up', '200', '--epochs', '50', '100']
    """
    for name, value in options.items():
        yield f"--{name.replace('_', '-')}"
        yield from map(str, value if isinstance(value, tuple) else (value,))


def vae_steps(sizes: Sizes, folder: Path, data_dir: Options) -> Iterator[Step]:
    """Train with every estimator, measure the variance on the first run, and draw the curves."""
    for data, dims in product(sizes.data, sizes.dims):
        names: list[str] = []
        for (estimator, k), seed in product(sizes.curves, sizes.seeds):
            names.append(f"vae-{data}-{dims}-{estimator}-{k}-seed{seed}")
            options = {"data": data, "dims": dims, "estimator": estimator, "k": k, "seed": seed}
            options |= {"keep_every": sizes.keep_every} if len(names) == 1 else {}
            seconds = sizes.seconds["vae"] * SLOWDOWN.get(estimator, 1.0)
            yield Step(names[-1], ("vae", *arguments(options | sizes.vae | data_dir)), seconds)
        measured = ("vae-variance", str(folder / names[0]), *arguments(sizes.variance | data_dir))
        yield Step(f"variance-{data}-{dims}", measured, sizes.seconds["variance"], (names[0],))
        drawn = ("vae-figures", *(str(folder / name) for name in names), *arguments(data_dir))
        yield Step(f"curves-{data}-{dims}", drawn, 10.0 + len(names), tuple(names))


def tsp_steps(sizes: Sizes, folder: Path) -> Iterator[Step]:
    """Train with every estimator, and draw the gaps. The shortest tours are found by the first runs."""
    nodes, names = sizes.tsp["nodes"], []
    for name, seed in product(TOUR_ESTIMATORS, sizes.seeds):
        names.append(f"tsp{nodes}-{name}-seed{seed}")
        batch_size = sizes.tours // (1 if name in SINGLE else 4)
        options = {"estimator": name, "seed": seed, "batch_size": batch_size}
        yield Step(names[-1], ("tsp", *arguments(options | sizes.tsp)), sizes.seconds["tsp"])
    drawn = ("tsp-figures", *(str(folder / name) for name in names))
    yield Step(f"tsp{nodes}-figures", drawn, 10.0, tuple(names))


def tables(folder: Path, sizes: Sizes) -> Tables:
    """Return the tables of a reproduction by the names that claims use."""
    paths = {"rules": "rules/rules.csv", "tsp": f"tsp{sizes.tsp['nodes']}-figures/gaps.csv"}
    for name in ("variances", "trajectory", "monte_carlo"):
        paths[name.replace("_", "-")] = f"bernoulli/{name}.csv"
    for dims in sizes.dims:
        variance = f"variance-{sizes.data[0]}-{dims}/variance.csv"
        paths |= {f"variance-{dims}": variance, f"variance-{dims}-all": variance}
        paths[f"curves-{dims}"] = f"curves-{sizes.data[0]}-{dims}/curves.csv"
    if not sizes.short:
        paths["curves-20-long"] = paths["curves-20"]
    return Tables({name: folder / path for name, path in paths.items()}, short=sizes.short)
