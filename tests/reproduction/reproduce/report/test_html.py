"""The elements of the report: escaped text, aligned numbers, charts as valid data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reproduction.reproduce.report.html import (
    Finding,
    Trace,
    cards,
    chart,
    image,
    table,
)


def test_numbers_are_aligned_and_text_is_escaped() -> None:
    html = table("a < b", ["x & y"], [["<b>"], [-1.5], ["-inf ± 0.01"], ["12 s"]])
    assert "<caption>a &lt; b</caption>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert re.findall(r"<td class='n'>(.*?)</td>", html) == ["−1.50", "−inf ± 0.01", "12 s"]


def test_a_chart_cannot_end_its_script() -> None:
    html = chart(
        "name",
        [Trace("</script>", "#000000", [1], [None], view="b"), Trace("x", "#000000", [1], [2.0])],
        caption="c",
        alternative="a",
    )
    (data,) = re.findall(r"<script type='application/json'>(.*?)</script>", html)
    content = json.loads(data)
    assert content["traces"][0]["label"] == "</script>"
    assert content["traces"][0]["y"] == [None]
    assert content["views"] == ["b", ""]


def test_values_that_json_cannot_hold_are_refused() -> None:
    trace = Trace("x", "#000000", [1], [float("nan")])
    with pytest.raises(ValueError, match="JSON compliant"):
        chart("name", [trace], caption="c", alternative="a")


def test_a_missing_picture_is_left_out(tmp_path: Path) -> None:
    assert image(tmp_path / "none.png", "alternative", "caption") == ""


def test_findings_show_their_verdict() -> None:
    html = cards([Finding("where", "p", "o", verdict) for verdict in (True, False, None)])
    found = re.findall(r"<li class='(.*?)'>", html)
    assert found == ["agrees", "differs", "no-comparison"]
