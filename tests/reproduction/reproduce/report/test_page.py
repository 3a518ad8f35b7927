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
from reproduction.reproduce.report.charts import bars, chart, line
from reproduction.reproduce.report.page import page, verdicts, write_report
from reproduction.reproduce.report.sections import figure1, figure2, figure3, rules, section, table
from reproduction.reproduce.settings import SHORT
from reproduction.reproduce.steps import Step

RESULTS = Path(__file__).parents[4] / "results"


def finding(verdict: str) -> Finding:
    claim = Claim("Figure 9", "a < b", "It is so.", (), lambda: ("", "agrees"))
    return Finding(claim, "7", verdict)


def small_page() -> str:
    rows = pd.DataFrame({"x": [1, 2], "y": [3.0, float("inf")], "e": [0.1, 0.1], "rule": "risk"})
    views = {
        "left": [line(rows, "risk", "x", "y", error="e")],
        "right": [line(rows, "risk", "x", "x")],
    }
    charts = chart(views, y="y", log=True), chart({"": [bars(rows, "rule", "y")]}, x="value")
    return page(
        verdicts([finding("agrees"), finding("undecided")], SHORT)
        + section("A <section>", "a & b", *charts, table(rows))
    )


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
    const seen = [lines.data.map((trace) => trace.visible).join(), lines.layout.yaxis.type];
    const [scale, view] = [1, 0].map((i) => lines.layout.updatemenus[i].buttons[1]);
    await Plotly.update(lines, ...view.args);
    await Plotly.relayout(lines, ...scale.args);
    seen.push(lines.data.map((trace) => trace.visible).join(), lines.layout.yaxis.type);
    seen.push(lines.layout.xaxis.title.text, bars.data[0].y.join());
    result = [...seen, document.documentElement.scrollWidth <= innerWidth];
    """
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen == ["true,false", "log", "false,true", "linear", "right", "RISK", True]


def test_sections_show_every_estimator_of_their_tables() -> None:
    vae, tours = RESULTS / "vae" / "2-mean-image", RESULTS / "tsp" / "tsp10"
    assert figure1(RESULTS / "bernoulli").count("REINFORCE, sampled baseline") > 2
    assert figure2(vae, 2).count("Straight-through Gumbel-Softmax") > 2
    assert figure3(tours).count("REINFORCE, batch mean") > 2
    assert "unordered_set_no_baseline" in rules(RESULTS / "rules")


def test_steps_that_have_not_succeeded_are_named(tmp_path: Path) -> None:
    stored = {"command": "python -m reproduction reproduce", "versions": {"swor": "0"}}
    stored["settings"] = asdict(SHORT)
    (tmp_path / "settings.json").write_text(json.dumps(stored))
    path = write_report(RunFolder(tmp_path), [Step("bernoulli", print, 1.0)], SHORT, [])
    html = path.read_text(encoding="utf-8")
    assert "The step bernoulli has not succeeded" in html
    assert "<td>python -m reproduction reproduce</td>" in html
    assert "<td>not run</td>" in html
