"""Charts as plain data: traces in views that the reader chooses from, drawn by ``page.js``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swor.experiments.runs.appearance import FAMILIES, family


def colour(name: str) -> int:
    """The place of an estimator's family in the palettes in ``page.js``.

    >>> colour("unordered_set_no_baseline"), colour("something else")
    (1, 12)
    """
    black = list(FAMILIES).index("exact")
    return min(list(FAMILIES).index(family(name) or "exact"), black)


@dataclass(frozen=True)
class Trace:
    """A line, or with ``kind="bar"`` bars.

    Attributes:
        label: in the legend.
        colour: place in the palettes.
        x: places.
        y: heights; None leaves a gap.
        view: which of the views of the chart it belongs to.
        dash: of the line: solid, dash or dot.
        kind: line, bar or points.
        text: shown beside the values when pointed at.
        error: half the length of an error bar.
    """

    label: str
    colour: int
    x: Sequence[float | str]
    y: Sequence[float | None]
    view: str = ""
    dash: str = "solid"
    kind: str = "line"
    text: Sequence[str] = ()
    error: Sequence[float] = ()


def spec(
    traces: Sequence[Trace],
    *,
    x: str,
    y: str,
    log: bool = False,
    slider: bool = False,
    views: str = "",
) -> dict[str, Any]:
    """A chart.

    Args:
        traces: what is drawn.
        x: title of the axis.
        y: title of the axis.
        log: whether the scale starts as a logarithmic one; the reader can change it. False leaves
            out the choice.
        slider: choose between the views by a slider and not by buttons, starting at the second.
        views: what the views are, for the choice.
    """
    names = list(dict.fromkeys(trace.view for trace in traces))
    return {
        "traces": [asdict(trace) for trace in traces],
        "x": x,
        "y": y,
        "log": log,
        "slider": slider,
        "views": names,
        "viewsLabel": views,
    }
