"""What independent and distinct pronunciations tell: duplicates, signal, variance of gradients, pass@m."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

import swor
from reproduction.harness.folder import RunFolder
from reproduction.harness.measurements import Advance, Job, do, flat_gradient, moments
from reproduction.harness.tables import read_table
from reproduction.harness.task import seeded
from reproduction.pronunciation.model import Pronouncer
from reproduction.pronunciation.settings import PronunciationMeasure
from reproduction.pronunciation.task import RULES, draw, right_probability
from reproduction.pronunciation.words import words
from swor.diagnostics.groups import duplicates

COMMAND = "pronunciation-measure"


class GroupRow(NamedTuple):
    """k pronunciations of a word: a row of ``groups.csv``; shares in percent, with standard errors."""

    k: int
    words: int
    duplicates: float
    duplicates_error: float
    no_signal_independent: float
    no_signal_independent_error: float
    no_signal_distinct: float
    no_signal_distinct_error: float


class VarianceRow(NamedTuple):
    """An estimator of the gradient: a row of ``variance.csv``; duplicates are those of the minibatch."""

    k: int
    estimator: str
    repetitions: int
    variance: float
    variance_error: float
    duplicates: float


class PassRow(NamedTuple):
    """Evaluations of pass@m: a row of ``pass.csv``.

    Attributes:
        mean: of the evaluations, and its standard error.
        exact: what they estimate.
        spread: the standard deviation of an evaluation, which is its true standard error.
        reported: the root mean square of the standard errors that the evaluations report; 0 for none.
    """

    samples: str
    k: int
    m: int
    words: int
    evaluations: int
    exact: float
    words_error: float
    mean: float
    mean_error: float
    spread: float
    reported: float


class Measuring:
    """A measurement in a folder: a job for every row, or group of rows, that the folder lacks."""

    def __init__(
        self, settings: PronunciationMeasure, model: Pronouncer, folder: RunFolder
    ) -> None:
        self.settings, self.model, self.folder = settings, model, folder
        self.groups = read_table(folder.path / "groups.csv", GroupRow, COMMAND)
        self.variances = read_table(folder.path / "variance.csv", VarianceRow, COMMAND)
        self.passes = read_table(folder.path / "pass.csv", PassRow, COMMAND)

    def run(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Measure what the folder lacks, with a progress bar, and return the tables."""
        do(self.jobs())
        return pd.DataFrame(self.groups), pd.DataFrame(self.variances), pd.DataFrame(self.passes)

    def jobs(self) -> list[Job]:
        """Return the jobs that are left."""
        settings, jobs = self.settings, []
        if {row.k for row in self.groups} != set(settings.k):
            jobs.append(Job("groups", 2, self.count))
        for name in RULES:
            if name not in {row.samples for row in self.passes}:
                work = partial(self.evaluate, name)
                jobs.append(Job(f"pass@m, {name}", settings.pass_repetitions, work))
        done = {(row.k, row.estimator) for row in self.variances}
        for k in settings.k:
            for name in RULES:
                if (k, name) not in done:
                    work = partial(self.gradient, k, name)
                    jobs.append(Job(f"variance, k = {k}, {name}", settings.repetitions, work))
        return jobs

    @torch.no_grad()
    def count(self, advance: Advance) -> None:
        """Write the duplicates and the groups without signal; the first k of K samples are k samples."""
        chosen, most = words("test", self.settings.words), max(self.settings.k)
        values, right = {}, {}
        for name in RULES:
            noise = seeded(self.settings.seed, "groups", name)
            values[name] = draw(self.model, chosen, name, most, noise).value
            right[name] = chosen.right(values[name])
            advance()
        rows = []
        for k in self.settings.k:
            same = {n: (r[:, :k].amax(-1) == r[:, :k].amin(-1)).float() for n, r in right.items()}
            shares = (duplicates(values["rloo"][:, :k]), same["rloo"], same["unordered_set"])
            numbers = [number for share in shares for number in percent(share)]
            rows.append(GroupRow(k, len(chosen.letters), *numbers))
        self.groups = rows
        self.folder.write_csv("groups.csv", [row._asdict() for row in rows])

    def gradient(self, k: int, name: str, advance: Advance) -> None:
        """Write the variance of the gradient of the mean success of a minibatch, by all parameters."""
        chosen = words("test", self.settings.batch_size)
        parameters = list(self.model.parameters())
        repeats: list[Tensor] = []

        def one(number: int) -> Tensor:
            noise = seeded(self.settings.seed, "gradient", k, name, number)
            sample = draw(self.model, chosen, name, k, noise)
            repeats.append(duplicates(sample.value).mean())
            loss = RULES[name](sample).loss(-chosen.right(sample.value))
            return flat_gradient(loss.mean(), parameters)

        draws, size = self.settings.repetitions, sum(p.numel() for p in parameters)
        stream = moments(one, draws, (size,), advance)
        numbers = (float(stream.total), float(stream.total_error))
        share = 100 * float(torch.stack(repeats).mean())
        self.variances.append(VarianceRow(k, name, draws, *numbers, share))
        self.folder.write_csv("variance.csv", [row._asdict() for row in self.variances])

    @torch.no_grad()
    def evaluate(self, name: str, advance: Advance) -> None:
        """Write evaluations of pass@m from k samples of every word, for m of 1, 2, 4, … up to k."""
        settings = self.settings
        chosen, k = words("test", settings.pass_words), settings.pass_k
        orders = [2**i for i in range(k.bit_length()) if 2**i <= k]
        found: dict[int, list[tuple[float, float]]] = {m: [] for m in orders}
        for number in range(settings.pass_repetitions):
            noise = seeded(settings.seed, "pass", name, number)
            sample = draw(self.model, chosen, name, k, noise)
            right = chosen.right(sample.value)
            for m in orders:
                found[m].append(pass_at(sample, right, m))
            advance()
        chance = right_probability(self.model, chosen).double()
        for m, pairs in found.items():
            means, errors = torch.tensor(pairs, dtype=torch.float64).T
            spread, exact = float(means.std()), 1 - (1 - chance) ** m
            about = (name, k, m, len(chance), len(means), float(exact.mean()))
            numbers = (float(exact.std()) / len(exact) ** 0.5, float(means.mean()))
            errors_of = (spread / len(means) ** 0.5, spread, float(errors.square().mean().sqrt()))
            self.passes.append(PassRow(*about, *numbers, *errors_of))
        self.folder.write_csv("pass.csv", [row._asdict() for row in self.passes])


def pass_at(sample: swor.Sample, right: Tensor, m: int) -> tuple[float, float]:
    """Return the mean over words of the estimate of pass@m, and the standard error that it reports.

    From independent samples this is the estimate of Chen et al. (2021), which reports none here.
    """
    if sample.scheme == swor.Scheme.WITH_REPLACEMENT:
        return float(swor.best_of_independent(sample, m).mean(right).mean()), 0.0
    found = swor.best_of(sample, m)
    known = 2 * m <= sample.k  # the variance needs pairs of groups of m
    variance = float(found.variance(right).sum()) if known else 0.0
    return float(found.mean(right).mean()), max(variance, 0.0) ** 0.5 / len(right)


def percent(share: Tensor) -> tuple[float, float]:
    """Return the mean of shares in percent, and its standard error."""
    share = 100 * share.double()
    return float(share.mean()), float(share.std() / len(share) ** 0.5)
