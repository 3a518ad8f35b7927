"""The steps of a reproduction: what is run, after what, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from swor.experiments.bernoulli.settings import BernoulliSettings
from swor.experiments.reproduce import actions
from swor.experiments.reproduce.cost import TIMES, TSP_STEP, VAE_EPOCH, VARIANCE
from swor.experiments.reproduce.sizes import REFERENCE, Sizes
from swor.experiments.tsp.settings import SINGLE, TSPSettings
from swor.experiments.tsp.task import TOUR_ESTIMATORS
from swor.experiments.vae.settings import VAESettings


@dataclass(frozen=True)
class Step:
    """A piece of work with a folder of its own, done once.

    Attributes:
        name: of the step and of its folder.
        run: writes the results into the folder that it is given.
        seconds: what it takes on one core, roughly.
        needs: names of the steps whose folders it reads.
    """

    name: str
    run: Callable[[Path], None]
    seconds: float
    needs: tuple[str, ...] = ()


def all_steps(sizes: Sizes, data_dir: Path | None = None) -> list[Step]:
    """The steps of a reproduction, in an order in which they can be done."""
    return [
        Step("rules", actions.rules, 5.0),
        Step("bernoulli", partial(actions.figure1, BernoulliSettings(repeats=sizes.repeats)), 15.0),
        *vae_steps(sizes, data_dir),
        *tsp_steps(sizes),
    ]


def vae_steps(sizes: Sizes, data_dir: Path | None) -> Iterator[Step]:
    """Training with every estimator; the variance on the reference; the figures."""
    for data in sizes.data:
        for dims in sizes.dims:
            runs = []
            for estimator, k in sizes.curves:
                for seed in sizes.seeds:
                    settings = VAESettings(
                        estimator=estimator,
                        k=k,
                        dims=dims,
                        data=data,
                        data_dir=data_dir,
                        batch_size=sizes.batch_size,
                        epochs=sizes.epochs,
                        seed=seed,
                        keep_every=sizes.keep_every if (estimator, k) == REFERENCE else 0,
                        log_every=10 if data == "digits" else 100,
                    )
                    runs.append(f"vae-{data}-{dims}-{estimator}-{k}-seed{seed}")
                    seconds = sizes.epochs * VAE_EPOCH[data] * TIMES.get(estimator, 1.0)
                    yield Step(runs[-1], partial(actions.train_vae, settings), seconds)
            reference = f"vae-{data}-{dims}-{REFERENCE[0]}-{REFERENCE[1]}-seed{sizes.seeds[0]}"
            measured = partial(actions.measure_variance, sizes, dims, data_dir, reference)
            yield Step(
                f"variance-{data}-{dims}", measured, variance_seconds(sizes, data), (reference,)
            )
            drawn = partial(actions.draw_vae, tuple(runs), data_dir)
            yield Step(f"curves-{data}-{dims}", drawn, 10.0 + len(runs), tuple(runs))


def tsp_steps(sizes: Sizes) -> Iterator[Step]:
    """The shortest tours; training with every estimator; the figures."""
    optima = partial(actions.shortest_tours, sizes.validation_size, sizes.nodes)
    first = f"tsp{sizes.nodes}-shortest"
    yield Step(first, optima, sizes.validation_size * 0.0018 * sizes.nodes)
    runs = []
    for name in TOUR_ESTIMATORS:
        for seed in sizes.seeds:
            settings = TSPSettings(
                nodes=sizes.nodes,
                estimator=name,  # type: ignore[arg-type]
                steps=sizes.steps,
                batch_size=sizes.tours // (1 if name in SINGLE else 4),
                learning_rate=sizes.learning_rate,
                validate_every=sizes.validate_every,
                validation_size=sizes.validation_size,
                rollout_size=sizes.validation_size,
                seed=seed,
            )
            runs.append(f"tsp{sizes.nodes}-{name}-seed{seed}")
            seconds = sizes.steps * TSP_STEP * sizes.tours / 512 * sizes.nodes / 20
            yield Step(runs[-1], partial(actions.train_tsp, settings), seconds, (first,))
    yield Step(
        f"tsp{sizes.nodes}-figures", partial(actions.draw_tsp, tuple(runs)), 10.0, tuple(runs)
    )


def variance_seconds(sizes: Sizes, data: str) -> float:
    """Measuring the variance: repetitions on all models, at several k on the last."""
    before = sizes.epochs // sizes.keep_every - 1
    cases = 29 if sizes.all_estimators else 8
    gradients = 2 * (sizes.repetitions + before * sizes.repetitions_before)
    return cases * gradients * VARIANCE[data]
