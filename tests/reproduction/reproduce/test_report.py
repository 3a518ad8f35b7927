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
from reproduction.claims.page import summary
from reproduction.harness.folder import RunFolder
from reproduction.reproduce.charts import dots, lines
from reproduction.reproduce.page import Section, about, cards, label, page, table
from reproduction.reproduce.report import (
    figure1,
    figure2,
    figure3,
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
    charts = lines(rows, "x", "y", facet="x") + dots(rows, "y", "x", "e")
    shown = Section("A <section>", "a & b", charts + table(rows))
    return page([verdicts([finding("agrees"), finding("undecided")], SHORT), shown])


def test_the_page_needs_nothing_else() -> None:
    html = small_page()
    ours = re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#part-)""", ours)
    assert "A &lt;section&gt;" in ours and "a &lt; b" in ours
    assert re.findall("href='#(.*?)'", ours) == re.findall("<h2 id='(.*?)'", ours)
    assert "agrees: 1, undecided: 1" in ours


def test_links_of_a_published_report_lead_to_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REPOSITORY_URL", raising=False)
    local = re.findall("href='(?!https)(.*?)'", about(tmp_path, "1"))
    assert len(local) == 2 and all((tmp_path / path).is_file() for path in local)
    monkeypatch.setenv("REPOSITORY_URL", "https://host.org/swor")
    assert "href='https://host.org/swor/blob/main/results/README.md'" in about(tmp_path, "1")


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    path = tmp_path / "report.html"
    path.write_text(small_page(), encoding="utf-8")
    script = """
    const [lines, dots] = document.querySelectorAll(".plotly-graph-div");
    const seen = [lines.data[0].name, lines.data[0].line.dash, lines.layout.yaxis.type];
    seen.push(dots.data[0].type, dots.data[0].mode, dots.data[0].marker.symbol);
    seen.push(String(dots.data[0].y), document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    name = "RISK (biased)"
    dot = ["scatter", "markers", "circle-open", name]
    assert seen == [name, "dashdot", "log", *dot, True]


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
    assert "swor 0 · " in html
    links = re.findall(r"<a href='(?!#)(.*?)'", html[html.index("<body>") :])
    assert links[0].startswith("https://arxiv.org/")
    assert len(links) == 3 and all((tmp_path / link).is_file() for link in links[1:])


def test_lines_of_one_estimator_with_several_k_are_told_apart() -> None:
    rows = [{"estimator": name, "k": k} for name, k in (("rloo", 4), ("rloo", 8), ("risk", 4))]
    points = pd.DataFrame([row | {"x": x, "y": 1.0 + x} for row in rows for x in range(2)])
    chart = lines(points, "x", "y")
    names = re.findall(r'"name":"([^"]*)"', chart)
    assert sorted(names) == sorted([label("risk"), *(f"{label('rloo')}, k = {k}" for k in (4, 8))])
    assert chart.count("lines+markers") == 1  # the line of more samples


def test_the_unordered_set_estimator_is_highlighted() -> None:
    names = ["rloo", "unordered_set", "risk"]
    cells = pd.DataFrame({"estimator": names, "x": 1.0, "y": [1.0, 2.0, 3.0]})
    assert lines(cells, "x", "y").count('"width":4') == 1
    assert dots(cells, "y", "x").count('"size":13') == 1
    assert table(cells).count("<tr class=ours>") == 1


def test_numbers_and_their_headers_are_on_the_same_side() -> None:
    cells = pd.DataFrame({"estimator": ["rloo"], "k": [4], "value": [-1.5], "note": ["none"]})
    rows = table(cells).split("</tr>")
    assert re.findall("<th(.*?)>", rows[0]) == re.findall("<td(.*?)>", rows[1])
    assert rows[0].count("class='number'") == 2
    assert ">−1.5<" in rows[1]


def test_a_card_has_everything_about_its_claim() -> None:
    findings = [finding(v) for v in ("agrees", "differs", "not shown in a run this short")]
    html = cards(findings)
    assert html.count("<article") == html.count("Criterion: It is so.") == 3
    assert all(f" {f.verdict}</p>" in html for f in findings)
    assert summary(findings) in verdicts(findings, SHORT).content
