"""The charts of a report: lines and dots of estimators, in panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.express as px

from reproduction.harness.appearance import appearance, in_order, is_biased
from reproduction.harness.statistics import OURS
from reproduction.reproduce.page import label

DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
"""Styles of lines, from matplotlib's names to plotly's."""

AXES = {
    "eta": "η",
    "evaluations": "evaluations of f",
    "gap": "optimality gap (%)",
    "instances": "training instances",
    "log_variance": "log-variance",
    "loss_mean": "mean loss",
    "negative_elbo": "−ELBO (nats)",
    "part": "",
    "smoothed": "−ELBO (nats)",
    "split": "",
    "steps": "training steps",
}
"""Columns of tables in words; where there are none, the values say enough."""

VALUES = {"both": "encoder and decoder", "train": "training images", "valid": "validation images"}
"""Values of columns in words."""


def lines(
    points: pd.DataFrame,
    x: str,
    y: str,
    *,
    facet: str | None = None,
    run: str | None = None,
    raw: str | None = None,
) -> str:
    """Return a chart with a line for each estimator and k, in a panel for each value of a column.

    The line of the unordered set estimator is thick. Lines of more samples than the fewest of their
    estimator have markers.

    Args:
        points: rows of a table with the column "estimator", and "k" if estimators have several;
            infinite values leave a gap.
        x: column of the horizontal axis.
        y: column of the vertical axis, which is logarithmic.
        facet: column of the panels.
        run: column that tells several lines of the same estimator apart.
        raw: column whose values are shown as points, if the lines are smoothed.
    """
    shown, names = labelled(points.assign(**{y: finite(points[y])}).replace(VALUES))
    looks = [appearance(name) for name in names.values()]
    options: dict[str, Any] = {
        "x": x,
        "log_y": True,
        "facet_col": facet,
        "color": "line",
        "color_discrete_sequence": [look.colour for look in looks],
        "category_orders": {"line": list(names)},
        "labels": AXES,
    }
    dashes = [DASHES[look.line] for look in looks]
    figure = px.line(
        shown, y=y, line_group=run, line_dash="line", line_dash_sequence=dashes, **options
    )
    figure.update_yaxes(**log_ticks(shown[y]))
    first = list(names.values())
    more = {line for i, (line, name) in enumerate(names.items()) if name in first[:i]}
    for trace in figure.data:
        mode = "lines+markers" if trace.name in more else "lines"
        trace.update(mode=mode, line_width=4 if names[trace.name] == OURS else 2)
    if raw is not None:
        points_of = px.scatter(shown, y=raw, **options)
        points_of.update_traces(marker_size=4, opacity=0.4, showlegend=False, hoverinfo="skip")
        figure.add_traces(list(points_of.data))
    return html(figure, height=420 + 20 * len(names))


def labelled(points: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Add the column "line", the label of estimator and k; return also the estimator of each label."""
    names: dict[str, str] = {}
    shown = points.assign(line="")
    for name in in_order(points["estimator"]):
        mine = points["estimator"] == name
        numbers = sorted(points[mine]["k"].unique()) if "k" in points else []
        for k in numbers if len(numbers) > 1 else [None]:
            line = emphasised(name) + ("" if k is None else f", k = {k}")
            shown.loc[mine if k is None else mine & (points["k"] == k), "line"] = line
            names[line] = name
    return shown, names


def dots(
    cells: pd.DataFrame, x: str, facet: str, error: str | None = None, *, log: bool = False
) -> str:
    """Return a dot for each estimator, with two standard errors, the lowest at the top, in panels.

    Circles are open for biased estimators, and the unordered set estimator has a large one.
    """
    shown = cells.assign(**{x: finite(cells[x])}).replace(VALUES)
    shown["line"] = [emphasised(name) for name in cells["estimator"]]
    shown["error"] = 2.0 * cells[error] if error else np.nan
    order = shown.groupby("line")[x].mean().sort_values().index
    names = dict(zip(shown["line"], shown["estimator"], strict=True))
    figure = px.scatter(
        shown,
        x=x,
        y="line",
        facet_col=facet,
        error_x="error",
        log_x=log,
        color="line",
        color_discrete_map={line: appearance(name).colour for line, name in names.items()},
        category_orders={"line": list(order)},
        labels=AXES | {"line": ""},
    )
    for trace in figure.data:
        name = names[trace.name]
        symbol = "circle-open" if is_biased(name) else "circle"
        trace.update(marker={"size": 13 if name == OURS else 9, "symbol": symbol})
    figure.update_xaxes(matches=None, **(log_ticks(shown[x]) if log else {}))
    figure.update_yaxes(dtick=1)  # the name of every estimator
    figure.update_layout(showlegend=False)
    return html(figure, height=150 + 20 * len(order))


def log_ticks(values: pd.Series[float]) -> dict[str, object]:
    """Return ticks at 1, 2 and 5 for a few decades; those of plotly are good for more, and for half of one.

    >>> log_ticks(pd.Series([0.3, 4.0]))["ticktext"]
    ['0.2', '0.5', '1', '2', '5']
    """
    low, high = np.log10(values.min()), np.log10(values.max())
    if not 0.7 < high - low < 3.0:
        return {}
    decades = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
    shown = [tick for tick in ticks if low - 0.3 < np.log10(tick) < high + 0.3]
    return {"tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}


def emphasised(name: str) -> str:
    """Return the label of an estimator in a chart, which is bold for the unordered set estimator."""
    return f"<b>{label(name)}</b>" if name == OURS else label(name)


def finite(values: pd.Series[float]) -> pd.Series[float]:
    """Return values with gaps where they are infinite."""
    return values.where(np.isfinite(values))


def html(figure: Any, height: int) -> str:
    """Return a chart as a fragment of a page that has plotly."""
    for note in figure.layout.annotations:
        note.text = " = ".join(filter(None, note.text.split("=")))
    figure.update_yaxes(exponentformat="power")
    below = {"orientation": "h", "yanchor": "top", "y": -0.18, "title_text": ""}
    figure.update_layout(template="plotly_white", height=height, legend=below)
    figure.update_layout(margin={"l": 10, "r": 10, "t": 30, "b": 10})
    config = {"responsive": True, "displayModeBar": False}
    fragment = figure.to_html(full_html=False, include_plotlyjs=False, config=config)
    return f"<div class='scroll chart'>{fragment}</div>"
