"""The elements of the report: tables, charts that ``page.js`` draws, pictures, and findings."""

from __future__ import annotations

import base64
import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

ACCENT = "#0072b2"
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
"""Styles of lines, from matplotlib's names to those of charts."""


# Tables of results, as the steps have written them.

Rows = Sequence[Mapping[str, str]]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Text, tables and pictures.


def section(name: str, title: str, *content: str) -> str:
    """Return a section of the page."""
    return f"<section id='{name}'><h2>{escape(title)}</h2>{''.join(content)}</section>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def bullets(items: Sequence[str]) -> str:
    """Return a list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def folded(summary: str, content: str) -> str:
    """Return content that is hidden until the reader opens it."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table that scrolls by itself on a narrow screen, with its numbers aligned right.

    >>> "<td class='n'>1.50</td>" in table("Costs", ["name", "cost"], [["a", 1.5]])
    True
    """
    headings = "".join(f"<th scope='col'>{escape(h)}</th>" for h in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{escape(caption, quote=True)}'>"
        f"<table><caption>{escape(caption)}</caption><thead><tr>{headings}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(content: object) -> str:
    text = escape(minus(f"{content:.2f}" if isinstance(content, float) else str(content)))
    kind = " class='n'" if text[:1].isdigit() or text[:1] in ("−", "–") else ""
    return f"<td{kind}>{text}</td>"


def minus(text: str) -> str:
    """Write a leading hyphen as a minus sign.

    >>> minus("-0.5")
    '−0.5'
    """
    return f"−{text[1:]}" if text.startswith("-") else text


def power(dims: int) -> str:
    """Return the size of a domain of so many variables with ten categories each.

    >>> power(20)
    '10²⁰'
    """
    return "10" + str(dims).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def image(path: Path, alternative: str, caption: str) -> str:
    """Return a folded picture that is stored in the page, or nothing if there is no such file."""
    if not path.exists():
        return ""
    content = base64.b64encode(path.read_bytes()).decode()
    source = f"data:image/png;base64,{content}"
    return folded(caption, f"<img alt='{escape(alternative, quote=True)}' src='{source}'>")


# Charts.


@dataclass(frozen=True)
class Trace:
    """A line of a chart, or a row of horizontal bars.

    Attributes:
        label: name in the legend.
        colour: colour on a light page, as "#rrggbb"; ``page.js`` lightens it on a dark page.
        x: coordinates on the horizontal axis, or the names of the bars.
        y: values; None leaves a gap.
        view: the view of the chart to which the trace belongs.
        dash: style of the line: "solid", "dash", "dot" or "dashdot".
        kind: "line" or "bar".
        text: what the tooltips show beside the values.
        error: half the lengths of the error bars.
    """

    label: str
    colour: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    view: str = ""
    dash: str = "solid"
    kind: str = "line"
    text: Sequence[str] = ()
    error: Sequence[float] = ()


def chart(
    name: str,
    traces: Sequence[Trace],
    *,
    caption: str,
    alternative: str,
    x: str = "",
    y: str = "",
    log: bool = False,
    views: str = "",
    slider: bool = False,
) -> str:
    """Return a chart with its controls.

    Args:
        name: unique name of the chart.
        traces: what the chart shows; its views are offered in their order.
        caption: text below the chart.
        alternative: description for readers who cannot see the chart.
        x: title of the horizontal axis; by default the name of the view.
        y: title of the vertical axis.
        log: whether the vertical axis starts logarithmic, with a button to change it.
        views: what distinguishes the views, as the label of the choice.
        slider: choose a view with a slider that starts at the second view, instead of buttons.
    """
    content = {
        "traces": [asdict(trace) for trace in traces],
        "views": list(dict.fromkeys(trace.view for trace in traces)),
        **{"x": x, "y": y, "log": log, "viewsLabel": views, "slider": slider},
    }
    data = json.dumps(content, allow_nan=False, ensure_ascii=False).replace("</", "<\\/")
    return (
        f"<figure class='chart' data-chart='{name}'>"
        f"<div class='controls'></div><div class='plot' role='img' "
        f"aria-label='{escape(alternative, quote=True)}'></div>"
        f"<figcaption>{escape(caption)}</figcaption>"
        f"<script type='application/json'>{data}</script></figure>"
    )


def on_log_axis(value: float) -> float | None:
    """Return a value that a logarithmic axis can show, or None.

    >>> on_log_axis(0.0), on_log_axis(math.inf), on_log_axis(2.0)
    (None, None, 2.0)
    """
    return value if 0.0 < value < math.inf else None


# Findings.


class Finding(NamedTuple):
    """A finding of the paper beside ours."""

    where: str
    paper: str
    ours: str
    agrees: bool | None  # None if the two cannot be compared

    @property
    def verdict(self) -> str:
        """Whether the findings agree, in words."""
        return {True: "agrees", False: "differs", None: "no comparison"}[self.agrees]


Section = tuple[str, list[Finding]]
"""A section of the report with its findings."""


def cards(findings: Sequence[Finding]) -> str:
    """Return all findings as cards, which fit small and large screens."""
    items = "".join(
        f"<li class='{finding.verdict.replace(' ', '-')}'><h3>{escape(finding.where)} "
        f"<span class='verdict'>{finding.verdict}</span></h3><dl><dt>Paper</dt><dd>"
        f"{escape(finding.paper)}</dd><dt>Here</dt><dd>{escape(finding.ours)}</dd></dl></li>"
        for finding in findings
    )
    return f"<ul class='cards'>{items}</ul>"
