"""The report: it is complete in itself, shows tables of results, and works in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from browser import browser, visit

pytest.importorskip("plotly")
pytest.importorskip("pandas")

from reproduction.claims.claim import Claim, Finding
from reproduction.harness.folder import RunFolder
from reproduction.reproduce.report import (
    Section,
    bars,
    figure1,
    figure2,
    figure3,
    label,
    lines,
    page,
    table,
    table1,
    theorems,
    verdicts,
    write_report,
)
from reproduction.reproduce.steps import SHORT, Step

RESULTS = Path(__file__).parents[3] / "results"


def finding(verdict: str) -> Finding:
    claim = Claim("Figure 9", "a < b", "It is so.", (), lambda: ("", "agrees"))
    return Finding(claim, "7", verdict)


def small_page() -> str:
    rows = pd.DataFrame({"x": [1, 2], "y": [3.0, float("inf")], "e": 0.1, "estimator": "risk"})
    charts = lines(rows, "x", "y", facet="x") + bars(rows, "estimator", "y", "x", "e")
    shown = Section("A <section>", "a & b", charts + table(rows))
    return page([verdicts([finding("agrees"), finding("undecided")], SHORT), shown])


def test_the_page_needs_nothing_else() -> None:
    html = small_page()
    ours = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", ours)
    assert "A &lt;section&gt;" in ours and "a &lt; b" in ours
    assert "<td class='agrees'>agrees</td>" in ours
    assert "agrees: 1, undecided: 1" in ours


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    path = tmp_path / "report.html"
    path.write_text(small_page(), encoding="utf-8")
    script = """
    const [lines, bars] = document.querySelectorAll(".plotly-graph-div");
    const seen = [lines.data[0].name, lines.data[0].line.dash, lines.layout.yaxis.type];
    seen.push(String(bars.data[0].y), document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen == ["RISK", "dashdot", "log", "RISK", True]


def test_sections_show_every_estimator_of_their_tables() -> None:
    vae, tours = RESULTS / "vae", RESULTS / "tsp" / "tsp10"
    assert figure1(RESULTS / "bernoulli").content.count("REINFORCE, sampled baseline") > 2
    assert table1(vae / "2-variance", 2).content.count("RELAX") > 2
    assert figure2(vae / "2-mean-image", 2).content.count("Straight-through Gumbel-Softmax") > 2
    assert figure3(tours).content.count("REINFORCE, batch mean") > 2
    assert "Unordered set, no baseline" in theorems(RESULTS / "rules").content


def test_steps_that_have_not_succeeded_are_named(tmp_path: Path) -> None:
    stored = {"command": "python -m reproduction reproduce", "versions": {"swor": "0"}}
    stored["settings"] = asdict(SHORT)
    (tmp_path / "settings.json").write_text(json.dumps(stored))
    path = write_report(RunFolder(tmp_path), [Step("bernoulli", ("bernoulli",), 1.0)], SHORT, [])
    html = path.read_text(encoding="utf-8")
    assert "The step bernoulli has not succeeded" in html
    assert "<td>python -m reproduction reproduce</td>" in html
    assert "<td>not run</td>" in html


def test_lines_of_one_estimator_with_several_k_are_told_apart() -> None:
    rows = [{"estimator": name, "k": k} for name, k in (("rloo", 4), ("rloo", 8), ("risk", 4))]
    points = pd.DataFrame([row | {"x": x, "y": 1.0 + x} for row in rows for x in range(2)])
    chart = lines(points, "x", "y")
    names = re.findall(r'"name":"([^"]*)"', chart)
    assert sorted(names) == sorted([label("risk"), *(f"{label('rloo')}, k = {k}" for k in (4, 8))])
    assert chart.count('"width":4') == 1  # the thick line is that of more samples
