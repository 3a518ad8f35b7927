"""The result of a comparison of estimators: a table, a frame, a plot and a recommendation."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from swor.diagnostics._performance import ComparedEstimator, Performance, log_variance, recommend

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        """Return which estimator to use, with the evidence, and why others are not considered."""
        return recommend(self.rows, self.evaluations)

    def __str__(self) -> str:
        lines = [HEADER, *(_cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[1:]]
        first = min(LONGEST_NAME, max(len(name) for name, *_ in lines))
        equal = f"at {self.evaluations} evaluations"
        widths[-2] = max(widths[-2], len(equal) - widths[-1] - 2)
        groups = f"at k = {self.k}".rjust(first + sum(widths[:-2]) + 2 * len(widths[:-2]))
        groups += "  " + equal.rjust(sum(widths[-2:]) + 2)
        table = ["  ".join([_name(n, first), *map(str.rjust, c, widths)]) for n, *c in lines]
        title = (
            f"The gradient at k = {self.k} samples, and with {self.evaluations} evaluations of f "
            f"({self.repeats} estimates each)"
        )
        return "\n".join([title, "", groups, *table, "", *self._notes])

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with one row for each estimator."""
        return _needs("pandas").DataFrame([_record(row) for row in self.rows])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the log-variances at equal k and at equal evaluations, with two standard errors."""
        ax = _needs("matplotlib.pyplot").gca() if ax is None else ax
        return plot(self.rows, self.k, self.evaluations, ax)

    @property
    def _notes(self) -> list[str]:
        measured = [m for row in self.rows for m in (row.at_k, row.at_evaluations)]
        too_many = [row.name for row in self.rows if row.at_evaluations is None]
        truth = "exact one" if self.exact else "mean of the unbiased ones"
        notes = [
            "log variance: the log of the summed variances of all parameters; -inf is below rounding",
            f"log bias²: the log of the squared distance of the mean gradient to the {truth}",
            "evals: evaluations of f for one estimate; ms: time of one estimate and its gradient",
        ]
        if not all(m.known for m in measured if m is not None):
            notes.append("–: not known, because too few draws decide it; increase repeats")
        notes += [f"{n} needs more than {self.evaluations} evaluations at k = 1" for n in too_many]
        notes += [
            f"{row.name} was trained for {row.at_k.moments.warm_up} steps before it was measured"
            for row in self.rows
            if row.at_k.moments.warm_up
        ]
        return notes + [f"left out: {name}, which {why}" for name, why in self.left_out.items()]


HEADER = ["estimator", "unbiased", "log bias²", "evals", "log variance", "ms", "k", "log variance"]
# The table has 100 columns; the cells of a longer name are on a line of their own.
LONGEST_NAME = 27
UNKNOWN = "–"


def _name(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else f"{name}\n{' ' * width}"


def _cells(row: ComparedEstimator) -> list[str]:
    first, equal = row.at_k, row.at_evaluations
    return [
        row.name,
        _unbiased(row),
        "none" if row.proven and row.unbiased else _bias(first),
        str(first.evaluations),
        _variance(first),
        f"{1000 * first.seconds:.2f}",
        *([UNKNOWN] * 2 if equal is None else [f"{equal.k}", _variance(equal)]),
    ]


def _unbiased(row: ComparedEstimator) -> str:
    if row.looks_biased:
        return "no"
    if row.unbiased is None:
        return "?"
    return "yes (proven)" if row.proven else "declared"


def _bias(m: Performance) -> str:
    """Return the log of a squared bias that was found, and otherwise the bound below which it is."""
    estimate, error = m.squared_bias
    if math.isnan(estimate):
        return UNKNOWN
    if m.bias_found:
        return f"{math.log(estimate):.2f}"
    bound = max(estimate, 0.0) + 2.0 * error
    return "rounding" if bound <= m.rounding else f"< {math.log(bound):.2f}"


def _variance(m: Performance) -> str:
    if m.infinite:
        return "infinite"
    return log_variance(m) if m.reliable else UNKNOWN


def _record(row: ComparedEstimator) -> dict[str, object]:
    record: dict[str, object] = {
        "estimator": row.name,
        "unbiased": row.unbiased,
        "proven": row.proven,
        "warm_up": row.at_k.moments.warm_up,
    }
    for suffix, m in (("", row.at_k), ("_equal_evaluations", row.at_evaluations)):
        record |= {
            f"k{suffix}": m and m.k,
            f"evaluations{suffix}": m and m.evaluations,
            f"reliable{suffix}": m and m.reliable,
            f"squared_bias{suffix}": m and m.squared_bias.estimate,
            f"squared_bias_error{suffix}": m and m.squared_bias.error,
            f"log_variance{suffix}": m and m.log_variance,
            f"log_variance_error{suffix}": m and m.log_variance_error,
            f"seconds{suffix}": m and m.seconds,
        }
    return record


BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"  # distinguishable for colour-blind readers


def plot(rows: Sequence[ComparedEstimator], k: int, evaluations: int, ax: Axes) -> Axes:
    """Plot the log-variance of every estimator: hollow at equal k, solid at equal evaluations."""
    rows = sorted(rows, key=lambda row: row.at_k.log_variance, reverse=True)
    measured = [m for row in rows for m in (row.at_k, row.at_evaluations) if m is not None]
    finite = [m.log_variance for m in measured if math.isfinite(m.log_variance)]
    ends = {-math.inf: min(finite, default=0.0) - 1.0, math.inf: max(finite, default=0.0) + 1.0}
    labels = {False: f"at k = {k}", True: f"at {evaluations} evaluations"}
    for y, row in enumerate(rows):
        colour = ORANGE if row.looks_biased else BLUE
        _dot(ax, row.at_k, y + 0.15, ends, colour, solid=False)
        if row.at_evaluations is not None:
            _dot(ax, row.at_evaluations, y - 0.15, ends, colour, solid=True)
    for solid, label in labels.items():
        ax.plot([], [], "o", color=BLUE, mfc=BLUE if solid else "none", label=label)
    if any(row.looks_biased for row in rows):
        ax.plot([], [], "o", color=ORANGE, label="biased")
    if not all(m.known for m in measured):
        ax.plot([], [], "o", color=GREY, label="not reliable: too few draws")
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_xlabel("log-variance of the gradient (◂: below rounding, ▸: infinite)")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(frameon=False)
    return ax


def _dot(
    ax: Axes, m: Performance, y: float, ends: Mapping[float, float], colour: str, *, solid: bool
) -> None:
    x = m.log_variance
    colour = colour if m.known else GREY
    ax.errorbar(
        ends.get(x, x),
        y,
        xerr=None if x in ends else 2.0 * m.log_variance_error,
        fmt={-math.inf: "<", math.inf: ">"}.get(x, "o"),
        color=colour,
        mfc=colour if solid else "white",
        capsize=2,
    )


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
