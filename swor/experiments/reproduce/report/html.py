"""Pieces of HTML."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table that scrolls by itself on a narrow screen; numbers are set to the right.

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
    if isinstance(content, float):
        content = f"{content:.2f}"
    text = escape(str(content))
    if text[:1].isdigit() or text[:1] in ("-", "–"):
        return f"<td class='n'>{text.replace('-', '−', 1) if text[0] == '-' else text}</td>"
    return f"<td>{text}</td>"


def image(path: Path, alternative: str, caption: str) -> str:
    """A picture within the page, folded away until asked for; nothing if there is none."""
    if not path.exists():
        return ""
    content = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<details><summary>{escape(caption)}</summary>"
        f"<img alt='{escape(alternative, quote=True)}' src='data:image/png;base64,{content}'>"
        "</details>"
    )


def chart(name: str, spec: dict[str, Any], caption: str, alternative: str) -> str:
    """A chart that ``page.js`` draws, with its controls."""
    data = json.dumps(spec, allow_nan=False, ensure_ascii=False).replace("</", "<\\/")
    return (
        f"<figure class='chart' data-chart='{name}'>"
        f"<div class='controls'></div><div class='plot' role='img' "
        f"aria-label='{escape(alternative, quote=True)}'></div>"
        f"<figcaption>{escape(caption)}</figcaption>"
        f"<script type='application/json'>{data}</script></figure>"
    )


def power(dims: int) -> str:
    """The size of a domain of so many variables of ten categories.

    >>> power(20)
    '10²⁰'
    """
    return "10" + str(dims).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def section(name: str, title: str, *content: str) -> str:
    """A part of the page."""
    return f"<section id='{name}'><h2>{escape(title)}</h2>{''.join(content)}</section>"


def paragraph(text: str) -> str:
    """Plain text."""
    return f"<p>{escape(text)}</p>"


def bullets(items: Sequence[str]) -> str:
    """A list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
