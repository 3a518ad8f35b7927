"""Interactive charts of tables of results, as fragments of HTML that share one copy of plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from reproduction.harness.appearance import appearance

DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
"""Styles of lines, from matplotlib's names to plotly's."""


def line(
    rows: pd.DataFrame, name: str, x: str, y: str, *, error: str | None = None, note: str = ""
) -> go.Scatter:
    """Return the line of an estimator, with two standard errors.

    Args:
        rows: rows of the table that the line shows.
        name: name of the estimator.
        x: column of the horizontal axis.
        y: column of the vertical axis; an infinite value leaves a gap.
        error: column of the standard errors.
        note: text after the label, such as the number of samples.
    """
    look = appearance(name)
    return go.Scatter(
        x=rows[x],
        y=rows[y].where(rows[y].abs() < float("inf")),
        name=f"{look.label}{note}",
        mode="lines+markers",
        line={"color": look.colour, "dash": DASHES[look.line]},
        marker={"size": 6 if len(rows) <= 40 else 1},
        error_y={"array": 2.0 * rows[error], "thickness": 1, "width": 0} if error else None,
    )


def bars(rows: pd.DataFrame, label: str, value: str, error: str | None = None) -> go.Bar:
    """Return a horizontal bar for each finite value, the lowest at the top."""
    finite = rows[rows[value].abs() < float("inf")].sort_values(value, ascending=False)
    return go.Bar(
        x=finite[value],
        y=[appearance(name).label for name in finite[label]],
        orientation="h",
        marker_color="#0072b2",
        error_x={"array": 2.0 * finite[error], "thickness": 1, "width": 3} if error else None,
    )


def chart(
    views: Mapping[str, Sequence[Any]], *, x: str = "", y: str = "", log: bool = False
) -> str:
    """Return a chart with a button for each of its views.

    Args:
        views: the lines or bars of each view, by the text of its button.
        x: title of the horizontal axis; by default the name of the view.
        y: title of the vertical axis.
        log: whether the vertical axis starts logarithmic, with buttons to change it.
    """
    traces = [(name, trace) for name, part in views.items() for trace in part]
    first = next(iter(views))
    figure = go.Figure([trace.update(visible=name == first) for name, trace in traces])
    bar = isinstance(traces[0][1], go.Bar)
    rows = max(len(trace.y) for _, trace in traces) if bar else 0
    figure.update_layout(
        template="plotly_white",
        height=110 + 20 * rows if bar else 460,
        margin={"l": 60, "r": 10, "t": 50, "b": 50},
        showlegend=not bar,
        legend={"font": {"size": 11}},
        xaxis_title=x or first,
        yaxis={"title": y, "type": "category" if bar else "log" if log else "linear"},
        yaxis_exponentformat="power",
    )
    choices = [
        {"label": name, "method": "update"}
        | {"args": [{"visible": [n == name for n, _ in traces]}, {"xaxis.title.text": x or name}]}
        for name in views
    ]
    scales = [
        {"label": kind, "method": "relayout", "args": [{"yaxis.type": kind}]}
        for kind in ("log", "linear")
    ]
    row = {"type": "buttons", "direction": "right", "y": 1.14}
    menus = [row | {"x": 0.0, "xanchor": "left", "buttons": choices}] if len(views) > 1 else []
    menus += [row | {"x": 1.0, "xanchor": "right", "buttons": scales}] if log else []
    figure.update_layout(updatemenus=menus)
    config = {"displayModeBar": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=config))
