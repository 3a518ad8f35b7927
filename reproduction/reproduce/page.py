"""The parts of the page of a report: its frame, the cards of claims, and tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from reproduction.claims.claim import Finding
from reproduction.harness.appearance import appearance, is_biased
from reproduction.harness.statistics import OURS

ROOT = Path(__file__).parents[2]
PAPER_LINK = "https://arxiv.org/abs/2002.06043"
LINKS = {
    "how the paper is reproduced": "docs/reproducing.md",
    "results of longer runs": "results/README.md",
}
"""Pages of the repository."""

SYMBOLS = {"agrees": "✓", "differs": "✗", "undecided": "?"}
"""Marks of verdicts beside their colours; all others have a dash."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>swor: the paper reproduced</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --text: #1b2430; --dim: #566270; --page: #fff; --card: #f6f8fa;
  --edge: #d8dee5; --green: #0a7a4b; --red: #b3321b; --ours: #e6f1f9; --link: #0b62a8; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e2e8ef; --dim: #9daab8; --page: #12171d;
  --card: #1b222b; --edge: #343f4b; --green: #4cc38a; --red: #ff8b73; --ours: #16324a; --link: #7cbcf2; }} }}
body {{ margin: 0 auto; max-width: 66rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--page); }}
h1 {{ font-size: 1.6rem; line-height: 1.25; }}
h2 {{ margin-top: 2.5rem; }}
a {{ color: var(--link); }}
p, li {{ max-width: 48rem; }}
.dim {{ color: var(--dim); }}
.scroll {{ overflow-x: auto; margin: 1rem 0; }}
.chart {{ background: #fff; border-radius: 0.5rem; }}
.chart > div {{ min-width: 44rem; }}
table {{ border-collapse: collapse; font-size: 0.85rem; }}
th, td {{ padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--edge); text-align: left; }}
td:first-child {{ min-width: 9rem; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.ours {{ background: var(--ours); font-weight: 600; }}
.cards {{ display: grid; gap: 0.8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)); }}
.card {{ background: var(--card); border: 1px solid var(--edge); border-left: 0.3rem solid var(--edge);
  border-radius: 0.4rem; padding: 0.6rem 0.8rem; font-size: 0.9rem; }}
.card p {{ margin: 0.3rem 0; }}
.card .claim {{ font-weight: 600; }}
.agrees {{ border-left-color: var(--green); }}
.differs {{ border-left-color: var(--red); }}
.agrees .verdict {{ color: var(--green); }}
.differs .verdict {{ color: var(--red); }}
.verdict {{ font-weight: 600; }}
</style>
<script>{plotly}</script>
</head>
<body>
<h1>The paper reproduced: Estimating Gradients for Discrete Random Variables by Sampling without
Replacement</h1>
{content}
</body>
</html>
"""


class Section(NamedTuple):
    """A part of the page: its title, a paragraph of text, and its charts and tables as HTML."""

    title: str
    text: str
    content: str = ""


def page(sections: Sequence[Section], about: str = "") -> str:
    """Return the whole page, which includes its style, the plotting library and a table of contents."""
    from plotly.offline import get_plotlyjs

    contents, parts = [], []
    for number, section in enumerate(sections, 1):
        title = escape(section.title)
        contents.append(f"<li><a href='#part-{number}'>{title}</a></li>")
        text = f"<p>{escape(section.text)}</p>" if section.text else ""
        parts.append(f"<h2 id='part-{number}'>{title}</h2>{text}{section.content}")
    whole = [about, f"<nav><ol>{''.join(contents)}</ol></nav>", *parts]
    return PAGE.format(plotly=get_plotlyjs(), content="\n".join(whole))


def about(folder: Path, version: str) -> str:
    """Return the lines below the title: version, date, and links to the paper and to the repository."""
    now = f"{datetime.now(UTC):%-d %B %Y, %H:%M} UTC"
    links = {"the paper": PAPER_LINK}
    home = os.environ.get("REPOSITORY_URL")  # set where the report becomes a page of the site
    for text, path in LINKS.items():
        links[text] = (
            f"{home.rstrip('/')}/blob/main/{path}" if home else os.path.relpath(ROOT / path, folder)
        )
    listed = " · ".join(f"<a href='{escape(to)}'>{text}</a>" for text, to in links.items())
    return f"<p class='dim'>swor {escape(version)} · {now}</p><p>{listed}</p>"


def cards(findings: Iterable[Finding]) -> str:
    """Return a card for each claim: its source, the claim, the criterion, the number and the verdict."""
    return f"<div class='cards'>{''.join(map(_card, findings))}</div>"


def _card(finding: Finding) -> str:
    claim, number, verdict = finding
    kind = verdict if verdict in SYMBOLS else "open"
    measured = "" if number == "–" else f"<p>Measured: {escape(number)}</p>"
    return (
        f"<article class='card {kind}'><p class='dim'>{escape(claim.where)}</p>"
        f"<p class='claim'>{escape(claim.statement)}</p>"
        f"<p class='verdict'>{SYMBOLS.get(verdict, '–')} {escape(verdict)}</p>{measured}"
        f"<p class='dim'>Criterion: {escape(claim.criterion)}</p></article>"
    )


def table(cells: pd.DataFrame) -> str:
    """Return a table with numbers aligned to the right, as their headers are.

    Estimators have their labels, and the row of the unordered set estimator is highlighted.
    """
    kinds = [" class='number'" if is_numeric_dtype(cells[name]) else "" for name in cells]
    header = "".join(f"<th{k}>{escape(str(n))}</th>" for n, k in zip(cells, kinds, strict=True))
    lines = [f"<tr>{header}</tr>"]
    named = "estimator" in cells
    shown = cells.assign(estimator=cells["estimator"].map(label)) if named else cells
    for row in shown.itertuples(index=False, name=None):
        values = "".join(f"<td{k}>{_cell(x)}</td>" for x, k in zip(row, kinds, strict=True))
        lines.append(f"<tr{' class=ours' if label(OURS) in row else ''}>{values}</tr>")
    return f"<div class='scroll'><table>{''.join(lines)}</table></div>"


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−").replace("inf", "∞")
    return escape(str(value))


def label(name: str) -> str:
    """Return the label of an estimator, which says whether it is biased.

    >>> label("risk"), label("rloo")
    ('RISK (biased)', 'RLOO')
    """
    return appearance(name).label + (" (biased)" if is_biased(name) else "")
