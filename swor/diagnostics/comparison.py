"""The result of a comparison: a table, a data frame, a plot and a recommendation."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from swor.diagnostics.measurement import Measurement, Row
from swor.diagnostics.plot import plot
from swor.diagnostics.recommend import recommend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`compare`: ``print`` it, or call ``recommend``, ``to_frame`` or ``plot``.

    Attributes:
        rows: one for each estimator.
        k: the number of samples at equal k.
        evaluations: the number of evaluations at equal evaluations.
        repeats: the number of estimates of each estimator.
        exact: whether the bias is relative to the exact gradient.
        left_out: estimators that could not be compared, with the reasons.
    """

    rows: tuple[Row, ...]
    k: int
    evaluations: int
    repeats: int
    exact: bool
    left_out: Mapping[str, str]

    def recommend(self) -> str:
        """Return which estimator to use, in a sentence, with the evidence."""
        return recommend(self.rows, self.evaluations)

    def __str__(self) -> str:
        lines = [HEADER, *(_cells(row) for row in self.rows)]
        widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(pairs))
            for pairs in (tuple(zip(line, widths, strict=True)) for line in lines)
        ]
        return "\n".join([self._title, "", *table, *self._notes])

    def __rich__(self) -> Table:
        """Return a table for ``rich.print``."""
        table: Table = _needs("rich.table").Table(title=self._title, caption="\n".join(self._notes))
        for i, name in enumerate(HEADER):
            table.add_column(name, justify="left" if i == 0 else "right")
        for row in self.rows:
            table.add_row(*_cells(row), style="dim" if row.looks_biased else None)
        return table

    def print(self) -> None:
        """Print the table and the recommendation to the terminal."""
        console = _needs("rich.console").Console()
        console.print(self)
        console.print(self.recommend())

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with one row for each estimator."""
        return _needs("pandas").DataFrame([_record(row) for row in self.rows])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the log-variances at equal k and at equal evaluations, with two standard errors."""
        ax = _needs("matplotlib.pyplot").gca() if ax is None else ax
        return plot(self.rows, self.k, self.evaluations, ax)

    @property
    def _title(self) -> str:
        return (
            f"Gradient variance at k = {self.k}, and at {self.evaluations} evaluations "
            f"({self.repeats} estimates each)"
        )

    @property
    def _notes(self) -> list[str]:
        against = "the exact gradient" if self.exact else "the mean of the other unbiased ones"
        left_out = [f"left out: {name}, which {why}" for name, why in self.left_out.items()]
        learned = [
            f"{row.name} was trained for {row.at_k.moments.warm_up} steps before it was measured"
            for row in self.rows
            if row.at_k.moments.warm_up
        ]
        return [f"z: bias in standard errors, relative to {against}", *learned, *left_out]


HEADER = ["estimator", "unbiased", "z", "evals", "log var", "ms", "k =", "evals =", "log var ="]


def _cells(row: Row) -> list[str]:
    equal = row.at_evaluations
    unbiased = {True: "yes", False: "no", None: "?"}[row.unbiased]
    first = row.at_k
    return [
        row.name,
        unbiased,
        "-" if math.isnan(first.z) else f"{first.z:.1f}",
        str(first.evaluations),
        _log_variance(first),
        f"{1000 * first.seconds:.2f}",
        *(["-"] * 3 if equal is None else [str(equal.k), str(equal.evaluations)]),
        *([] if equal is None else [_log_variance(equal)]),
    ]


def _log_variance(m: Measurement) -> str:
    return (
        "-inf"
        if m.log_variance == -math.inf
        else f"{m.log_variance:.2f} ± {m.log_variance_error:.2f}"
    )


def _record(row: Row) -> dict[str, object]:
    record: dict[str, object] = {
        "estimator": row.name,
        "unbiased": row.unbiased,
        "warm_up": row.at_k.moments.warm_up,
    }
    for suffix, m in (("", row.at_k), ("_equal_evaluations", row.at_evaluations)):
        record |= {
            f"k{suffix}": m and m.k,
            f"evaluations{suffix}": m and m.evaluations,
            f"bias_z{suffix}": m and m.z,
            f"log_variance{suffix}": m and m.log_variance,
            f"log_variance_error{suffix}": m and m.log_variance_error,
            f"seconds{suffix}": m and m.seconds,
        }
    return record


def _needs(module: str) -> ModuleType:
    """Import an optional package, or raise an error that names the extra."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs the package {error.name!r}, which is not installed; expected the extra "
            "'experiments'. Install it with: pip install 'swor[experiments]'",
            name=error.name,
        ) from error
