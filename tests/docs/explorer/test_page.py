"""The explorer: a page of the documentation that works in a browser, without a network or a server."""

from __future__ import annotations

import json
import re
from pathlib import Path

from browser import browser, visit
from documentation import DOCS

PAGE = DOCS / "explorer" / "index.html"


def test_the_page_loads_only_files_beside_it() -> None:
    loaded = re.findall(
        r"""(?:src|<link [^>]*href)=["']((?!data:)[^"'#]+)""", PAGE.read_text(encoding="utf-8")
    )
    assert loaded
    assert all((PAGE.parent / name).is_file() for name in loaded)


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    script = """
    await state.settled;
    const rows = () => [...document.querySelectorAll("#rules tbody tr")];
    const cell = (rule) => document.querySelector(`tr[data-rule=${rule}]`).dataset.variance;
    const set = (id, value) => {
      const input = document.getElementById(id);
      input.value = value;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const shown = Object.keys(maths.exactMoments([0.6, 0.4], [0, 1], 1));
    const seen = [rows().length === shown.length, rows().every((row) => row.cells[0].textContent)];
    seen.push(document.body.innerText.includes("undefined"));
    set("n", 4); set("k", 4);
    await state.settled;
    seen.push(cell("unordered_set"));
    set("k", 2);
    await state.settled;
    seen.push(Number(cell("unordered_set")) > 0);
    document.getElementById("draw").click();
    seen.push(document.querySelectorAll("#sample .chip").length);
    seen.push(document.querySelectorAll("#outcomes tbody tr").length);
    set("m", 2);
    await state.settled;
    seen.push(Number(cell("best_of")) < Number(cell("best_of_independent")));
    seen.push(document.getElementById("best").innerText.startsWith("The expected lowest cost of 2 draws is"));
    set("m", 1);
    await state.settled;
    seen.push(Math.abs(cell("best_of") / cell("unordered_set") - 1) < 1e-9);
    seen.push(document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(PAGE, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen == [True, True, False, "0", True, 2, 4, True, True, True, True]


def test_the_chart_the_tie_and_the_limit(tmp_path: Path) -> None:
    browser()
    script = """
    const set = (id, value) => {
      const input = document.getElementById(id);
      input.value = value;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const bold = () => document.querySelectorAll("#rules tr.best").length;
    const limit = () => document.getElementById("limit").textContent;
    await state.settled;
    const points = (rule) => document.querySelectorAll(`#chart .${rule} circle`).length;
    const seen = [points("unordered_set"), points("rloo"), bold(), limit()];
    set("k", 1);
    await state.settled;
    seen.push(bold());
    set("k", 6);
    set("n", 4);
    seen.push(limit());
    set("k", 2);
    set("n", 3);
    seen.push(limit());
    set("n", 20);
    set("k", 20);
    await state.settled;
    seen.push(limit(), document.getElementById("k").value);
    result = seen;
    """
    text, console = visit(PAGE, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == [] and console == ""
    assert seen[:5] == [6, 6, 1, "", 0]  # six outcomes; a winner at k = 3, and a tie at k = 1
    assert seen[5:] == [
        "k is 4 now: there are no more distinct outcomes.",
        "",
        "With 20 outcomes, k is at most 4 here: a larger one has too many samples to sum over.",
        "4",
    ]


def test_a_change_ends_the_sums_of_the_problem_before(tmp_path: Path) -> None:
    browser()
    script = """
    const choose = (n) => {
      document.getElementById("n").value = n;
      document.getElementById("n").dispatchEvent(new Event("input", { bubbles: true }));
      return state.settled;
    };
    const before = choose(20);
    const after = choose(4);
    await before;
    await after;
    result = [Object.keys(state.moments).length, document.querySelectorAll("#outcomes tbody tr").length];
    """
    failures, seen = json.loads(visit(PAGE, script, tmp_path)[0])
    assert (failures, seen) == ([], [4, 4])


def test_no_change_blocks_the_page_with_the_sums_of_the_best_of_m(tmp_path: Path) -> None:
    browser()
    script = """
    await state.settled;
    const set = (id, value) => {
      document.getElementById(id).value = value;
      document.getElementById(id).dispatchEvent(new Event("input", { bubbles: true }));
    };
    const busy = () => document.getElementById("bests").getAttribute("aria-busy");
    const seen = [busy()];
    set("m", 3);
    seen.push(busy());
    await state.settled;
    result = [...seen, busy(), document.getElementById("best").innerText.includes("3 draws")];
    """
    failures, seen = json.loads(visit(PAGE, script, tmp_path)[0])
    assert (failures, seen) == ([], [None, "true", None, True])


def test_a_link_has_the_costs_of_a_chosen_shape_as_they_are(tmp_path: Path) -> None:
    browser()
    script = """
    const input = document.getElementById("costs");
    input.value = "shifted";
    input.dispatchEvent(new Event("input", { bubbles: true }));
    const f = [...state.f], link = location.hash;
    location.hash = "#k=2&m=1&logits=0,0,0&f=0,1,2";  // the page is open, and follows it
    await new Promise((resume) => { addEventListener("hashchange", resume, { once: true }); });
    const seen = [state.f];
    location.hash = link;
    await new Promise((resume) => { addEventListener("hashchange", resume, { once: true }); });
    result = [...seen, JSON.stringify(state.f) === JSON.stringify(f)];
    """
    failures, seen = json.loads(visit(PAGE, script, tmp_path)[0])
    assert (failures, seen) == ([], [[0, 1, 2], True])


def test_a_link_opens_the_same_problem(tmp_path: Path) -> None:
    browser()
    script = """
    location.hash = "#k=2&m=2&logits=1,0.5,-2,0.25&f=0.1,3,-1,2";
    const opened = followLink();
    await state.settled;
    const m = document.getElementById("m").value;
    const seen = [opened, samples(), m, state.logits, state.f, location.hash];
    location.hash = "#k=2&logits=1,x,3&f=1,2,3";
    result = [...seen, followLink()];
    """
    failures, seen = json.loads(visit(PAGE, script, tmp_path)[0])
    assert failures == []
    link = "#k=2&m=2&logits=1,0.5,-2,0.25&f=0.1,3,-1,2"
    assert seen == [True, 2, "2", [1, 0.5, -2, 0.25], [0.1, 3, -1, 2], link, False]
