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
from swor.experiments.vae.published import label
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
    """All that is measured: every k on the last model, the paper's k on those before it."""
    found = []
    for epoch in epochs:
        last = epoch == max(epochs)
        repetitions = settings.repetitions if last else settings.repetitions_before
        for row in rows:
            ks = sorted({*row[1:]}) if last else [row.paper_k]
            found += [Case(epoch, row.estimator, k, repetitions) for k in ks]
    return found


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
    return Measurement(**{name: kinds[name](text) for name, text in row.items()})


def measure(
    settings: Variance,
    vae: CategoricalVAE,
    images: Tensor,
    models: Mapping[int, Path],
    todo: Sequence[Case],
    folder: RunFolder,
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
            load_model(models[case.epoch], vae, prefix="vae.")
            draw = Gradient(settings, vae, images, case.estimator, case.k)
            measured += one(case, draw, lambda: progress.advance(bar))
            folder.write_csv(TABLE, [m._asdict() for m in measured])
    return measured


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
