"""The result of a comparison of estimators: a table, a plot and a recommendation."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from swor.diagnostics.moments import GradientMoments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

BIASED_FROM = 6.0  # see swor.diagnostics._bias


@dataclass(frozen=True)
class Performance:
    """The bias, the variance, the evaluations and the time of an estimator at one k.

    Attributes:
        k: the number of samples.
        evaluations: the number of evaluations of f for one estimate.
        z: the z-score of its bias; NaN if there was no gradient to compare with.
        moments: of its gradient.
        seconds: the time of one estimate and its gradient.
        eps: the rounding error of the gradients.
    """

    k: int
    evaluations: int
    z: float
    moments: GradientMoments
    seconds: float
    eps: float

    @property
    def log_variance(self) -> float:
        """The log of the trace of the covariance of the gradient; −inf if the trace is rounding error."""
        m = self.moments
        rounding = (256 * self.eps) ** 2 * float((m.mean.square() + m.variance).sum())
        trace = float(m.trace)
        return -math.inf if trace <= rounding else math.log(trace)

    @property
    def log_variance_error(self) -> float:
        """The standard error of ``log_variance``."""
        constant = self.log_variance == -math.inf
        return 0.0 if constant else float(self.moments.trace_error / self.moments.trace)


@dataclass(frozen=True)
class ComparedEstimator:
    """An estimator, measured at equal k and at equal evaluations.

    Attributes:
        name: of the estimator.
        unbiased: as registered; None if it is not registered.
        at_k: measured at equal k.
        at_evaluations: measured at equal evaluations; None if even k = 1 needs more.
    """

    name: str
    unbiased: bool | None
    at_k: Performance
    at_evaluations: Performance | None

    @property
    def looks_biased(self) -> bool:
        """Whether it is registered as biased, or a bias was measured."""
        return self.unbiased is False or self.at_k.z > BIASED_FROM


def recommend(rows: Sequence[ComparedEstimator], evaluations: int) -> str:
    """Name the unbiased estimator of least variance at equal evaluations, and those that come close."""
    fair = {
        row.name: row.at_evaluations
        for row in rows
        if row.at_evaluations is not None and not row.looks_biased
    }
    if not fair:
        return (
            f"None of these is unbiased and fits into {evaluations} evaluations; allow "
            "more evaluations, or compare others, such as unordered_set."
        )
    order = sorted(fair, key=lambda name: fair[name].log_variance)
    best = fair[order[0]]
    return " ".join([_first(order[0], best), *_others(order[1:], fair, best)])


def _first(name: str, best: Performance) -> str:
    none = best.log_variance == -math.inf
    variance = "no variance at all" if none else f"log-variance {_log_variance(best)}"
    return f"Use {name} with k = {best.k}: no sign of bias, {variance} at {best.evaluations} evaluations."


def _others(names: list[str], fair: dict[str, Performance], best: Performance) -> list[str]:
    """Name the estimators that are as good within the error, and by how much the next one is worse."""
    close = [name for name in names if _gap(fair[name], best) <= 2.0 * _error(fair[name], best)]
    behind = [name for name in names if name not in close]
    said = []
    if close:
        said.append(f"{_and(close)} {'is' if len(close) == 1 else 'are'} as good within the error.")
    if behind:
        gap = _gap(fair[behind[0]], best)
        by = "" if gap == math.inf else f", with {math.exp(gap):.3g} times the variance"
        said.append(f"{behind[0]} comes next{by}.")
    return said


def _gap(other: Performance, best: Performance) -> float:
    same = other.log_variance == best.log_variance  # also where both are −inf
    return 0.0 if same else other.log_variance - best.log_variance


def _error(other: Performance, best: Performance) -> float:
    return math.hypot(other.log_variance_error, best.log_variance_error)


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


BLUE, ORANGE = "#0072B2", "#D55E00"  # distinguishable for colour-blind readers


def plot(rows: Sequence[ComparedEstimator], k: int, evaluations: int, ax: Axes) -> Axes:
    """Plot the log-variance of every estimator: hollow at equal k, solid at equal evaluations."""
    rows = sorted(rows, key=lambda row: row.at_k.log_variance, reverse=True)
    measured = [m for row in rows for m in (row.at_k, row.at_evaluations) if m is not None]
    finite = [m.log_variance for m in measured if math.isfinite(m.log_variance)]
    floor = min(finite, default=0.0) - 1.0
    labels = {False: f"at k = {k}", True: f"at {evaluations} evaluations"}
    for y, row in enumerate(rows):
        colour = ORANGE if row.looks_biased else BLUE
        _dot(ax, row.at_k, y + 0.15, floor, colour, solid=False)
        if row.at_evaluations is not None:
            _dot(ax, row.at_evaluations, y - 0.15, floor, colour, solid=True)
    for solid, label in labels.items():
        ax.plot([], [], "o", color=BLUE, mfc=BLUE if solid else "none", label=label)
    if any(row.looks_biased for row in rows):
        ax.plot([], [], "o", color=ORANGE, label="biased")
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_xlabel("log-variance of the gradient (◂: none at all)")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _dot(ax: Axes, m: Performance, y: float, floor: float, colour: str, *, solid: bool) -> None:
    none = m.log_variance == -math.inf
    ax.errorbar(
        floor if none else m.log_variance,
        y,
        xerr=None if none else 2.0 * m.log_variance_error,
        fmt="<" if none else "o",
        color=colour,
        mfc=colour if solid else "white",
        capsize=2,
    )


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

    rows: tuple[ComparedEstimator, ...]
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
        first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
        table = [
            "  ".join([name.ljust(first), *map(str.rjust, cells, widths)]) for name, *cells in lines
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


def _cells(row: ComparedEstimator) -> list[str]:
    first, equal = row.at_k, row.at_evaluations
    return [
        row.name,
        {True: "yes", False: "no", None: "?"}[row.unbiased],
        "-" if math.isnan(first.z) else f"{first.z:.1f}",
        str(first.evaluations),
        _log_variance(first),
        f"{1000 * first.seconds:.2f}",
        *(
            ["-"] * 3
            if equal is None
            else [f"{equal.k}", f"{equal.evaluations}", _log_variance(equal)]
        ),
    ]


def _log_variance(m: Performance) -> str:
    error = "" if m.log_variance == -math.inf else f" ± {m.log_variance_error:.2f}"
    return f"{m.log_variance:.2f}{error}"  # "-inf" has no error


def _record(row: ComparedEstimator) -> dict[str, object]:
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
    """Import an optional package, or raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the package {error.name!r} is not installed; expected it for tables and plots. Install it "
            f"with: pip install {error.name}",
            name=error.name,
        ) from error
