"""The report: its numbers, its page, and what a reader can do with it in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import browser, visit

from swor.experiments.reproduce.report.charts import Trace, spec
from swor.experiments.reproduce.report.claims import Claim
from swor.experiments.reproduce.report.html import chart, image, section, table
from swor.experiments.reproduce.report.numbers import rank_correlation
from swor.experiments.reproduce.report.page import missing, page
from swor.experiments.reproduce.report.tsp import ahead, gap_traces, on_par
from swor.experiments.reproduce.report.vae import bars, beside_paper, compare_table, epochs, lowest
from swor.experiments.vae.published import PAPER

pytest.importorskip("plotly")


def test_rank_correlation_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = [6.29, 6.29, 13.4, 7.0, 8.5, 1.0], [1.0, 3.0, 2.0, 7.0, 7.0, 0.5]
    assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert rank_correlation(a, a) == pytest.approx(1.0)


def variance_rows(shift: float) -> list[dict[str, str]]:
    """The paper's own numbers, moved, as the rows of a variance.csv."""
    return [
        {
            "epoch": "100",
            "estimator": name,
            "k": str(entry.k),
            "evaluations": "4",
            "part": part,
            "log_variance": str(entry.published[2] + shift),
            "standard_error": "0.01",
        }
        for name, entry in PAPER.items()
        for part in ("encoder", "decoder", "both")
    ]


def test_table_1_agrees_with_itself() -> None:
    claims = compare_table(variance_rows(-3.0), "digits", 2)
    assert [claim.agrees for claim in claims] == [True, True]
    assert "rank correlation 1.00" in claims[0].ours
    assert "−3.00" in beside_paper(variance_rows(-3.0), 2)


def test_table_1_in_reverse_differs() -> None:
    rows = variance_rows(0.0)
    for row in rows:
        row["log_variance"] = str(-float(row["log_variance"]))
    assert [claim.agrees for claim in compare_table(rows, "digits", 2)] == [False, False]


def test_no_variance_at_all_leaves_a_gap() -> None:
    rows = variance_rows(0.0)
    rows[0]["log_variance"] = "-inf"
    assert next(trace.y for trace in epochs(rows)) == [None]
    assert None in bars(rows)[0].y
    assert "−inf" in beside_paper(rows, 2)


def test_the_lowest_of_each_curve() -> None:
    rows = [
        {"estimator": "arsm", "k": "1", "split": split, "smoothed": value}
        for split, value in (("train", "9.0"), ("train", "7.5"), ("valid", "8.0"))
    ]
    assert lowest(rows) == {("arsm", 1): {"train": 7.5, "valid": 8.0}}


def tsp_rows(gaps: dict[str, float]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    rows = [
        {
            "estimator": name,
            "seed": "0",
            "steps": str(steps),
            "instances": str(64 * steps),
            "gap": str(gap),
            "gap_standard_error": "0.01",
        }
        for name, gap in gaps.items()
        for steps in (0, 10, 20)
    ]
    return rows, [{"estimator": name, "gap": str(gap)} for name, gap in gaps.items()]


@pytest.mark.parametrize(("others", "verdict"), [(2.0, True), (0.5, False), (1.0, None)])
def test_figure_3_is_compared(others: float, verdict: bool | None) -> None:
    names = ("reinforce", "sum_and_sample", "reinforce_rollout")
    gaps = dict.fromkeys(names, others) | dict.fromkeys(("risk", "risk_beam_search"), 1.1)
    rows, ranking = tsp_rows(gaps | {"unordered_set": 1.0})
    assert ahead(rows, ranking, 10).agrees is verdict
    assert on_par(rows, ranking, 10).agrees is True
    assert {len(trace.x) for trace in gap_traces(rows)} == {2}  # the untrained model is left out


def small_page(path: Path) -> str:
    lines = [
        Trace("<one>", 0, [1, 2], [1.0, 10.0], view="left"),
        Trace("two", 1, [1, 2], [3.0, None], view="left", dash="dot"),
        Trace("one", 0, [1, 2], [5.0, 6.0], view="right", error=[0.1, 0.2]),
    ]
    bars = [Trace("v", 1, ["a", "b"], [1.0, 2.0], view=f"k = {k}", kind="bar") for k in (1, 2)]
    (path / "dot.png").write_bytes(b"\x89PNG")
    return page(
        [Claim("Table 1", "this", "that & more", True), Claim("Figure 9", "x", "y", None)],
        [
            section(
                "s",
                "A <section>",
                chart("lines", spec(lines, x="x", y="y", log=True, views="Side"), "c", "alt"),
                chart("bars", spec(bars, x="x", y="y", slider=True, views="k"), "c", "alt"),
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
    assert "1 of 1 findings" in html
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
    const before = document.documentElement.dataset.theme;
    document.getElementById("theme").click();
    seen.push(before !== document.documentElement.dataset.theme);
    seen.push([...document.images].every((image) => image.alt));
    seen.push(document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen[:3] == [2, "log", "1,2"]
    assert seen[3:] == [1, "true", "false", "linear", "x", "1", "k = 1", True, True, True]
