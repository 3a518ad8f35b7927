r"""The variance and the bias of the estimators of Figure 3 on kept models, at equal numbers of tours.

$$\sum_j \text{Var}[g_j], \qquad \lVert E[g] - \nabla L \rVert^2$$

$L$ is the mean expected length of the tours of a fixed minibatch of instances, and $g$ an estimate of its
gradient with respect to all parameters. The minibatch is fixed since its instances interact by batch norm.
An estimator that trains with one tour of each of k times as many instances draws k independent tours of
each instance here. The variance given the instances is the same: that of the mean of as many independent
terms. What the measurement leaves out is the variance of the choice of instances, which is smaller for
those estimators.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

import swor
from reproduction.harness.appearance import appearance
from reproduction.harness.checkpoint import read_checkpoint, write_checkpoint
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.harness.measurements import (
    Advance,
    Job,
    do,
    flat_gradient,
    moments_and_means,
    squared_norm,
)
from reproduction.harness.models import load_model
from reproduction.harness.tables import read_table
from reproduction.harness.task import seeded
from reproduction.tsp.measurement_settings import BLOCKS, TSPVariance
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.problem import tour_length
from reproduction.tsp.rollout import greedy_lengths
from reproduction.tsp.settings import SINGLE, ModelSettings, Name
from reproduction.tsp.task import TOUR_ESTIMATORS, SampledTours, draw, tour_loss
from reproduction.tsp.variance_tables import with_ratios
from swor.diagnostics.groups import duplicates

TABLE, POLICIES = "variance.csv", "policies.csv"
REFERENCE: Name = "unordered_set"
SAMPLED = 25  # times that k independent tours are drawn to describe a policy


class VarianceRow(NamedTuple):
    """An estimator on a model: a row of ``variance.csv``; errors are standard errors."""

    step: int
    estimator: str
    k: int
    repetitions: int
    variance: float
    variance_error: float
    squared_bias: float
    squared_bias_error: float


class PolicyRow(NamedTuple):
    """A model on the minibatch: a row of ``policies.csv``; means over independent tours."""

    step: int
    log_p: float
    log_p_error: float
    duplicates: float
    duplicates_error: float
    length: float
    greedy_length: float
    squared_gradient: float
    squared_gradient_error: float


class Subject(NamedTuple):
    """The model, its weights by step, and the instances of the minibatch."""

    model: AttentionModel
    models: Mapping[int, Path]
    instances: Tensor


def model_to_measure(settings: ModelSettings) -> AttentionModel:
    """Make a model whose batch norm leaves its running statistics as they are, in training mode too.

    Greedy rollouts use these statistics, and must not depend on earlier measurements.
    """
    model = AttentionModel(settings)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = 0.0
    return model


def one_by_one(tours: SampledTours) -> SampledTours:
    """Return k tours of each instance as single tours of repeated instances, (batch · k, 1)."""
    value, log_p = tours.sample.value.flatten(0, 1), tours.sample.log_p.flatten()
    return SampledTours(
        tours.policy,
        tours.instances.repeat_interleave(tours.sample.k, 0),
        swor.Sample(value.unsqueeze(1), log_p.unsqueeze(1), scheme=tours.sample.scheme),
        tours.cost.reshape(-1, 1),
    )


class Gradient:
    """Estimates of the gradient of the mean loss of the minibatch, (parameters,).

    The model has the weights of the step already. A greedy rollout is that of the model itself.
    """

    def __init__(
        self, settings: TSPVariance, subject: Subject, step: int, name: str, purpose: str = "noise"
    ) -> None:
        self.model, self.instances = subject.model, subject.instances
        self.place = (settings.seed, purpose, step, name)
        self.estimator = TOUR_ESTIMATORS[name]
        self.k = settings.k - self.estimator.baseline.samples(settings.k)  # all draw as many tours
        self.single = name in SINGLE  # k tours are k estimates, each as in training
        self.parameters = list(self.model.parameters())
        self.size = sum(p.numel() for p in self.parameters)
        greedy = greedy_lengths(self.model.eval(), self.instances)
        self.greedy = greedy.repeat_interleave(self.k if self.single else 1).unsqueeze(-1)
        self.model.train()  # batch norm by the statistics of the minibatch, as in training

    def __call__(self, number: int) -> Tensor:
        """Return the gradient of a draw."""
        noise = seeded(*self.place, number)
        policy = self.model(self.instances)
        sample = draw(self.estimator.scheme, policy, self.k, noise)
        cost = tour_length(self.instances, sample.value)
        tours = SampledTours(policy, self.instances, sample, cost)
        tours = one_by_one(tours) if self.single else tours
        loss = tour_loss(self.estimator, tours, noise, lambda: self.greedy)
        return flat_gradient(loss.mean(), self.parameters)


def repetitions(settings: TSPVariance, name: str) -> int:
    """Return how often the gradient of an estimator is drawn; few times if it is not random."""
    beams = TOUR_ESTIMATORS[name].scheme == swor.Scheme.BEAM_SEARCH
    return BLOCKS if beams else settings.repetitions


class Measuring:
    """A measurement in a folder: a job for every reference and every estimator that the folder lacks.

    The reference of a model is kept in a file until all estimators have been compared with it. All files
    are whole, and all noise depends on its place alone, so the measurement can be interrupted anywhere.
    """

    def __init__(self, settings: TSPVariance, subject: Subject, folder: RunFolder) -> None:
        self.settings, self.subject, self.folder = settings, subject, folder
        self.measured = read_table(folder.path / TABLE, VarianceRow, "tsp-variance")
        self.policies = read_table(folder.path / POLICIES, PolicyRow, "tsp-variance")

    def run(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Measure what the folder lacks, with a progress bar, and return the whole tables."""
        do([job for step in self.subject.models for job in self.jobs(step)])
        return with_ratios(pd.DataFrame(self.measured)), pd.DataFrame(self.policies)

    def jobs(self, step: int) -> list[Job]:
        """Return the jobs that are left for a model."""
        left, jobs = self.left(step), []
        if left and not self.kept(step).exists():
            work = partial(self.reference, step)
            jobs.append(Job(f"step {step}, reference", self.settings.reference, work))
        for name in left:
            work = partial(self.estimator, step, name)
            draws = repetitions(self.settings, name)
            jobs.append(Job(f"step {step}, {appearance(name).label}", draws, work))
        return jobs

    def left(self, step: int) -> list[Name]:
        """Return the estimators that have not been measured on a model."""
        done = {m.estimator for m in self.measured if m.step == step}
        return [name for name in self.settings.estimators if name not in done]

    def kept(self, step: int) -> Path:
        """Return the file with the block means of the reference of a model."""
        return self.folder.path / f"reference-{step}.pt"

    def kept_means(self, step: int) -> Tensor:
        """Read these means."""
        means = read_checkpoint(self.kept(step)).get("means")
        size = sum(p.numel() for p in self.subject.model.parameters())
        if not isinstance(means, Tensor) or means.shape != (BLOCKS, size):
            raise UserError(
                f"{self.kept(step)} does not hold the means of {BLOCKS} blocks of {size} numbers; expected "
                "those that this measurement wrote. Remove the file, and they are measured again."
            )
        return means

    def reference(self, step: int, advance: Advance) -> None:
        """Draw the reference of a model, and describe its policy."""
        subject, settings = self.subject, self.settings
        load_model(subject.models[step], subject.model)
        draw = Gradient(settings, subject, step, REFERENCE, "reference")
        _, means = moments_and_means(draw, settings.reference, draw.size, BLOCKS, advance)
        row = describe(settings, subject, step, squared_norm(means))
        self.policies = [*(p for p in self.policies if p.step != step), row]
        self.folder.write_csv(POLICIES, [p._asdict() for p in self.policies])
        write_checkpoint(self.kept(step), {"means": means})

    def estimator(self, step: int, name: str, advance: Advance) -> None:
        """Measure an estimator on a model."""
        load_model(self.subject.models[step], self.subject.model)
        draw = Gradient(self.settings, self.subject, step, name)
        draws = repetitions(self.settings, name)
        reference = self.kept_means(step)
        stream, means = moments_and_means(draw, draws, draw.size, BLOCKS, advance)
        bias = squared_norm(means - reference)
        variance = (float(stream.total), float(stream.total_error))
        self.measured.append(VarianceRow(step, name, draw.k, draws, *variance, *bias))
        table = with_ratios(pd.DataFrame(self.measured))
        self.folder.write_csv(TABLE, table.to_dict("records"))
        if not self.left(step):
            self.kept(step).unlink()


@torch.no_grad()
def describe(
    settings: TSPVariance, subject: Subject, step: int, gradient: tuple[float, float]
) -> PolicyRow:
    """Describe a policy by independent tours, and by the squared norm of its gradient with its error."""
    model, instances = subject.model, subject.instances
    greedy = greedy_lengths(model.eval(), instances)
    policy, noise = model.train()(instances), seeded(settings.seed, "policy", step)
    rows = []
    for _ in range(SAMPLED):
        sample = swor.ancestral_sample(policy, settings.k, generator=noise)
        length = tour_length(instances, sample.value)
        columns = (sample.log_p.mean(), duplicates(sample.value).mean(), length.mean())
        rows.append(torch.stack(columns).double())
    table = torch.stack(rows)
    (log_p, share, length_mean), errors = table.mean(0).tolist(), table.std(0) / SAMPLED**0.5
    log_p_error, share_error, _ = errors.tolist()
    lengths = (length_mean, float(greedy.mean()))
    return PolicyRow(step, log_p, log_p_error, share, share_error, *lengths, *gradient)
