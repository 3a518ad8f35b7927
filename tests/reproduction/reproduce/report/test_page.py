"""The page of the report: it is complete in itself, and works in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from browser import browser, visit

pytest.importorskip("plotly")
pytest.importorskip("pandas")

from reproduction.harness.appearance import appearance
from reproduction.harness.folder import RunFolder
from reproduction.reproduce.report.html import (
    Finding,
    Trace,
    chart,
    image,
    section,
    table,
)
from reproduction.reproduce.report.page import (
    DEVIATIONS,
    deviations,
    missing,
    page,
    write_report,
)
from reproduction.reproduce.settings import FULL, SHORT
from reproduction.reproduce.steps import Step


def small_page(path: Path) -> str:
    lines = [
        Trace("<one>", appearance("risk").colour, [1, 2], [1.0, 10.0], view="left"),
        Trace("two", appearance("relax").colour, [1, 2], [3.0, None], view="left", dash="dot"),
        Trace("one", appearance("risk").colour, [1, 2], [5.0, 6.0], view="right", error=[0.1, 0.2]),
    ]
    bars = [
        Trace("v", "#0072b2", ["a", "b"], [1.0, 2.0], view=f"k = {k}", kind="bar") for k in (1, 2)
    ]
    text = {"caption": "c", "alternative": "alt"}
    (path / "dot.png").write_bytes(b"\x89PNG")
    return page(
        [Finding("Table 1", "this", "that & more", True), Finding("Figure 9", "x", "y", None)],
        [
            section(
                "s",
                "A <section>",
                chart("lines", lines, x="x", y="y", log=True, views="Side", **text),
                chart("bars", bars, x="x", y="y", slider=True, views="k", **text),
                table("numbers", ["a", "b"], [["x", 1.0]]),
                image(path / "dot.png", "a dot", "dot"),
            ),
            missing("curves"),
        ],
        short=True,
    )


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    html = small_page(tmp_path)
    ours = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", ours)
    assert "1 of the 1 findings" in html
    assert "A &lt;section&gt;" in html
    assert all(" alt='" in tag for tag in re.findall(r"<img[^>]*>", ours))


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    path = tmp_path / "report.html"
    path.write_text(small_page(tmp_path), encoding="utf-8")
    script = """
    const [lines, bars] = document.querySelectorAll(".plot");
    const [left, right, log] = lines.parentElement.querySelectorAll("button");
    const seen = [lines.data.length, lines.layout.yaxis.type, bars.data[0].x.join()];
    right.click();
    seen.push(lines.data.length, right.getAttribute("aria-pressed"), left.getAttribute("aria-pressed"));
    log.click();
    seen.push(lines.layout.yaxis.type, lines._fullLayout.xaxis.title.text);
    const slider = document.querySelector("input[type=range]");
    seen.push(slider.value);
    slider.value = 0; slider.dispatchEvent(new Event("input"));
    seen.push(document.querySelector("output").textContent);
    setTheme("light");
    seen.push(lines.data[0].line.color);
    document.getElementById("theme").click();
    seen.push(document.documentElement.dataset.theme, lines.data[0].line.color);
    seen.push([...document.images].every((image) => image.alt));
    seen.push(document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen[:3] == [2, "log", "1,2"]
    assert seen[3:10] == [1, "true", "false", "linear", "x", "1", "k = 1"]
    assert seen[10:] == [appearance("risk").colour, "dark", "rgb(234,175,128)", True, True]


def test_steps_that_have_not_succeeded_are_named(tmp_path: Path) -> None:
    stored = {
        "command": "python -m reproduction reproduce",
        "versions": {"swor": "0"},
        "settings": asdict(SHORT),
    }
    (tmp_path / "settings.json").write_text(json.dumps(stored))
    path = write_report(RunFolder(tmp_path), [Step("bernoulli", print, 1.0)], SHORT)
    html = path.read_text(encoding="utf-8")
    assert "The step bernoulli has not succeeded" in html
    assert "0 of the 0 findings" in html
    assert "<td>python -m reproduction reproduce</td>" in html
    assert "<td>not run</td>" in html


def test_a_short_run_is_a_deviation_itself() -> None:
    assert deviations(SHORT).count("<li>") == len(DEVIATIONS) + 1
    assert "This is a short run" in deviations(SHORT)
    assert deviations(FULL).count("<li>") == len(DEVIATIONS)
