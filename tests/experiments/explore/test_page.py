"""``swor explore``: the page is one file that works in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import browser, visit

from swor import cli
from swor.estimators.registry import ESTIMATORS, lift
from swor.estimators.single import reinforce
from swor.experiments.explore import page
from swor.types import Scheme


def test_the_page_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert cli.main(["explore", "--out", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    html = path.read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert cli.main(["explore", "--out", str(path)]) == 1
    assert "exists" in capsys.readouterr().err


def test_a_rule_that_the_page_does_not_have_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = page()
    entry = lift(reinforce, Scheme.WITH_REPLACEMENT, unbiased=True, equation="none")
    monkeypatch.setitem(ESTIMATORS, "one_more_rule", entry)
    path = tmp_path / "page.html"
    assert cli.main(["explore", "--out", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == before


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    path = tmp_path / "page.html"
    path.write_text(page(), encoding="utf-8")
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
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen == [True, True, False, "0", True, 2, 4, True, True, True, True]
