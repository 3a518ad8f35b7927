"""The measurements behind Table 1, one case after the other, each kept as soon as it is made."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

from swor.experiments.checkpoint import load_model
from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder
from swor.experiments.vae.gradient import Gradient
from swor.experiments.vae.moments import log_variances
from swor.experiments.vae.published import Domain, label, paper_k, paper_log_variance
from swor.experiments.vae.tables import Measurement, Row

if TYPE_CHECKING:
    from torch import Tensor

    from swor.experiments.vae.model import CategoricalVAE
    from swor.experiments.vae.variance import Variance

PARTS = ("encoder", "decoder", "both")
TABLE = "variance.csv"


class Case(NamedTuple):
    """An estimator on a model."""

    epoch: int
    estimator: str
    k: int
    repetitions: int


def cases(settings: Variance, rows: Sequence[Row], epochs: Sequence[int]) -> list[Case]:
    """All that is measured: every estimator with each of its k on every model."""
    return [
        Case(
            epoch,
            row.estimator,
            k,
            settings.repetitions if epoch == max(epochs) else settings.before,
        )
        for epoch in epochs
        for row in rows
        for k in sorted({*row[1:]})
    ]


def read(folder: Path) -> list[Measurement]:
    """The measurements that a folder already has."""
    path = folder / TABLE
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_measurement(row) for row in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); expected the table that vae-variance wrote. Restore "
            "the file, or measure again in another folder."
        ) from error


def _measurement(row: Mapping[str, str]) -> Measurement:
    kinds = get_type_hints(Measurement)
    return Measurement(**{name: kind(row[name]) for name, kind in kinds.items()})


class Subject(NamedTuple):
    """What gradients are taken of."""

    vae: CategoricalVAE
    images: Tensor
    models: Mapping[int, Path]  # weights of the former, by epoch
    domain: Domain


def measure(
    settings: Variance, subject: Subject, todo: Sequence[Case], folder: RunFolder
) -> list[Measurement]:
    """The measurements of a folder, after those that it lacks have been made and kept."""
    from rich.progress import Progress

    measured = read(folder.path)
    done = {(m.epoch, m.estimator, m.k) for m in measured}
    left = [case for case in todo if case[:3] not in done]
    with Progress() as progress:
        bar = progress.add_task("", total=sum(case.repetitions for case in left))
        for case in left:
            name = f"epoch {case.epoch}, {label(case.estimator)}, k = {case.k}"
            progress.update(bar, description=name)
            load_model(subject.models[case.epoch], subject.vae, prefix="vae.")
            draw = Gradient(settings, subject.vae, subject.images, case.estimator, case.k)
            measured += one(case, draw, lambda: progress.advance(bar))
            rows = [m._asdict() | {"paper": _paper(m, subject.domain)} for m in measured]
            folder.write_csv(TABLE, rows)
    return measured


def _paper(measurement: Measurement, domain: Domain) -> float | None:
    """The paper's figure, which is of the encoder, and of its own k."""
    same = (measurement.part, measurement.k) == ("encoder", paper_k(measurement.estimator))
    return paper_log_variance(measurement.estimator, domain) if same else None


def one(case: Case, gradient: Gradient, advance: Callable[[], None]) -> list[Measurement]:
    """The log-variances of a case: encoder, decoder and both.

    Args:
        case: what is measured.
        gradient: draws of it.
        advance: called after every draw.
    """

    def draw(number: int) -> tuple[Tensor, Tensor, Tensor]:
        drawn = gradient(number)
        advance()
        return drawn

    found = log_variances(draw, case.repetitions)
    first = case[:3]
    return [
        Measurement(*first, gradient.evaluations, part, *log_variance, case.repetitions)
        for part, log_variance in zip(PARTS, found, strict=True)
    ]
