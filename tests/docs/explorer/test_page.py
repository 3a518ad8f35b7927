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
        r"""(?:src|href)=["']((?!data:)[^"'#]+)""", PAGE.read_text(encoding="utf-8")
    )
    assert loaded
    assert all((PAGE.parent / name).is_file() for name in loaded)


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    script = """
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
    seen.push(cell("unordered_set"));
    set("k", 2);
    seen.push(Number(cell("unordered_set")) > 0);
    document.getElementById("draw").click();
    seen.push(document.querySelectorAll("#sample .chip").length);
    seen.push(document.querySelectorAll("#outcomes tbody tr").length);
    set("m", 2);
    seen.push(Number(cell("best_of")) < Number(cell("best_of_independent")));
    seen.push(document.getElementById("best").innerText.startsWith("The expected lowest cost of 2 draws is"));
    set("m", 1);
    seen.push(Math.abs(cell("best_of") / cell("unordered_set") - 1) < 1e-9);
    seen.push(document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(PAGE, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen == [True, True, False, "0", True, 2, 4, True, True, True, True]
