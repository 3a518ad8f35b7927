"""Table 1: the gradient variance of estimators on the same models."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from reproduction.harness.appearance import appearance
from reproduction.harness.folder import RunFolder
from reproduction.harness.measurements import Advance, Job, do, flat_gradient, moments
from reproduction.harness.models import load_model
from reproduction.harness.tables import read_table
from reproduction.harness.task import seeded
from reproduction.vae.model import CategoricalVAE, uniform
from reproduction.vae.published import PAPER, Domain, paper_k, paper_log_variance
from reproduction.vae.settings import METHODS, VAESettings, VAEVariance
from reproduction.vae.task import check_applies, make_estimate, surrogate
from swor.estimators.estimator import EstimatorLike
from swor.estimators.learning import warm_up

PARTS = ("encoder", "decoder", "both")
TABLE, TIMES = "variance.csv", "times.csv"
ROUNDS = 30  # in each of which every estimator is timed once
REMEMBERED = 500  # steps of a warm-up; moving averages have forgotten their start long before


class Comparison(NamedTuple):
    """The k of an estimator in each of the three comparisons."""

    estimator: str
    paper_k: int
    equal_k: int
    equal_evaluations: int


class Case(NamedTuple):
    """A measurement to make: an estimator with a k on a model."""

    epoch: int
    estimator: str
    k: int
    repetitions: int


class Measurement(NamedTuple):
    """The log-variance of an estimator on a model: a row of ``variance.csv``."""

    epoch: int
    estimator: str
    k: int
    evaluations: int
    part: str
    log_variance: float
    standard_error: float
    repetitions: int


class Subject(NamedTuple):
    """The model, its data and its weights, of which gradients are taken."""

    vae: CategoricalVAE
    images: Tensor
    models: Mapping[int, Path]  # weights of the former, by epoch
    domain: Domain


def comparisons(settings: VAEVariance, trained: VAESettings) -> list[Comparison]:
    """Return the k of every estimator in the paper, at equal k, and at equal evaluations.

    An estimator that needs more evaluations even for k = 1 has k = 1.
    """
    n, c = trained.dims, trained.categories
    rows = []
    for name in settings.estimators:
        count = {k: METHODS[name].evaluations(k, uniform(n, c)) for k in range(1, settings.k + 1)}
        fits = [k for k, evaluations in count.items() if evaluations <= settings.k]
        usual = PAPER[name].k if name in PAPER else settings.k
        rows.append(Comparison(name, usual, settings.k if fits else 1, max(fits, default=1)))
        for k in {*rows[-1][1:]}:
            check_applies(name, n, c, k)
    return rows


def cases(settings: VAEVariance, rows: Sequence[Comparison], epochs: Sequence[int]) -> list[Case]:
    """Return the measurements to make: every estimator with each of its k on every model."""
    repetitions = {e: settings.repetitions if e == max(epochs) else settings.before for e in epochs}
    return [
        Case(epoch, row.estimator, k, repetitions[epoch])
        for epoch in epochs
        for row in rows
        for k in sorted({*row[1:]}, reverse=True)
    ]


def measure(
    settings: VAEVariance, subject: Subject, todo: Sequence[Case], folder: RunFolder
) -> list[Measurement]:
    """Make the measurements that a folder lacks, write each at once, and return all of them."""
    measured = read_table(folder.path / TABLE, Measurement, "vae-variance")
    done = {(m.epoch, m.estimator, m.k) for m in measured}

    def work(case: Case, advance: Advance) -> None:
        load_model(subject.models[case.epoch], subject.vae, part="vae")
        draw = Gradient(settings, subject.vae, subject.images, case.estimator, case.k)
        measured.extend(measure_case(case, draw, advance))
        rows = [m._asdict() | {"paper": _paper(m, subject.domain)} for m in measured]
        folder.write_csv(TABLE, rows)

    jobs = []
    for case in (case for case in todo if case[:3] not in done):
        name = f"epoch {case.epoch}, {appearance(case.estimator).label}, k = {case.k}"
        jobs.append(Job(name, case.repetitions, partial(work, case)))
    do(jobs)
    return measured


def measure_times(
    settings: VAEVariance, subject: Subject, todo: Sequence[Case], folder: RunFolder
) -> None:
    """Write the median processor time of a gradient of every estimator on the last model, unless it is there.

    Estimators are timed in turns, so that they share whatever else the machine does. They are untrained,
    which takes the same time.
    """
    if (folder.path / TIMES).exists():
        return
    last = max(subject.models)
    load_model(subject.models[last], subject.vae, part="vae")
    untrained = replace(settings, warm_up=0)
    cases = [case[:3] for case in todo if case.epoch == last]
    draws = [Gradient(untrained, subject.vae, subject.images, *case[1:]) for case in cases]
    took = [[_seconds(draw, number) for draw in draws] for number in range(ROUNDS)]
    seconds = [statistics.median(column) for column in zip(*took, strict=True)]
    rows = [
        {"epoch": epoch, "estimator": name, "k": k, "seconds": each}
        for (epoch, name, k), each in zip(cases, seconds, strict=True)
    ]
    folder.write_csv(TIMES, rows)


def _seconds(draw: Gradient, number: int) -> float:
    begin = time.process_time()
    draw(number)
    return time.process_time() - begin


def measure_case(case: Case, gradient: Gradient, advance: Advance) -> list[Measurement]:
    """Measure the log-variances of a case: those of the encoder, the decoder and both."""
    stream = moments(gradient, case.repetitions, gradient.sizes, advance)
    variances = [*stream.variance.tolist(), float(stream.total)]
    errors = [*stream.variance_error.tolist(), float(stream.total_error)]
    return [
        Measurement(*case[:3], gradient.evaluations, part, *_log(variance, error), case.repetitions)
        for part, variance, error in zip(PARTS, variances, errors, strict=True)
    ]


def _log(variance: float, error: float) -> tuple[float, float]:
    """Return the logarithm of a variance, −inf for none, and the standard error of the logarithm."""
    return (math.log(variance), error / variance) if variance > 0.0 else (-math.inf, 0.0)


def _paper(measurement: Measurement, domain: Domain) -> float | None:
    """Return the number in the paper, which is that of encoder and decoder together at the paper's k."""
    same = (measurement.part, measurement.k) == ("both", paper_k(measurement.estimator))
    return paper_log_variance(measurement.estimator, domain) if same else None


class Gradient:
    """Draws of the gradient of the mean −ELBO of a minibatch, encoder before decoder, flattened.

    An estimator that learns is made, and trained on the model before the first draw.
    """

    def __init__(
        self, settings: VAEVariance, vae: CategoricalVAE, images: Tensor, name: str, k: int
    ) -> None:
        self.settings, self.vae, self.images = settings, vae, images
        self.name, self.k = name, k
        networks = (list(vae.encoder.parameters()), list(vae.decoder.parameters()))
        self.parameters = [p for network in networks for p in network]
        self.sizes = tuple(sum(p.numel() for p in network) for network in networks)
        with torch.no_grad():
            self.evaluations = METHODS[name].evaluations(k, vae.posterior(self.minibatch(0)))
        weights = seeded(settings.seed, "method", name, k)
        self.estimate = make_estimate(name, vae, images.shape[-1], weights)
        warm_up(self.estimate, self.warm_up_loss, warm_up_steps(self.estimate, settings))

    def minibatch(self, number: int) -> Tensor:
        """Return the first records, or new ones for every draw."""
        records = self.settings.records
        if not self.settings.new_minibatch:
            return self.images[:records].float()
        return self.random_images(records, "minibatch", number)

    def random_images(self, records: int, purpose: str, number: int) -> Tensor:
        """Return training images that a purpose and a number decide, (records, pixels)."""
        generator = seeded(self.settings.seed, purpose, number)
        rows = torch.randint(len(self.images), (records,), generator=generator)
        return self.images[rows].float()

    def warm_up_loss(self, step: int) -> Tensor:
        """Return the surrogate of a step of the warm-up."""
        records = self.settings.warm_up_records
        x = self.random_images(records, "warm-up", step) if records else self.minibatch(step)
        return self.loss(x, step, "control")

    def loss(self, x: Tensor, number: int, purpose: str) -> Tensor:
        """Return the surrogate of a draw, averaged over a minibatch."""
        vae, name, k = self.vae, self.name, self.k
        noise = seeded(self.settings.seed, purpose, name, k, number)
        posterior = vae.posterior(x)
        kl = vae.divergence(posterior)
        inside = self.settings.kl_in_cost
        loss = surrogate(vae, name, self.estimate, x, posterior, kl, k, noise, kl_in_cost=inside)
        return loss.mean()

    def __call__(self, number: int) -> Tensor:
        """Return the gradient of a draw, (parameters,)."""
        loss = self.loss(self.minibatch(number), number, "noise")
        return flat_gradient(loss, self.parameters)


def warm_up_steps(estimate: EstimatorLike, settings: VAEVariance) -> int:
    """Return the steps of the warm-up: fewer for an estimator with moving averages and no parameters."""
    trains = isinstance(estimate, nn.Module) and any(True for _ in estimate.parameters())
    return settings.warm_up if trains else min(settings.warm_up, REMEMBERED)
