"""Texts that are computed from committed tables are up to date, and pages have no other measured numbers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from reproduction.answers.listed import ANSWERS, outdated_answers, write_answers

ROOT = Path(__file__).parents[3]
FOLDERS = [
    ROOT / "results",
    *(
        ROOT / "results" / name
        for name in ("vae", "tsp", "lm", "best_of", "rl4co", "pronunciation")
    ),
]
PAGES = [folder / name for folder in FOLDERS for name in ("README.md", "details.md")]
COPIED = re.compile(r"<!-- (table|claims): .*?<!-- (end of table|claims: end) -->", re.DOTALL)
CODE = re.compile(r"```.*?```|^    .*?$|`[^`]*`", re.DOTALL | re.MULTILINE)
CHOSEN = {"0.001", "0.999", "0.1.0"}
"""Numbers in the text that are settings, versions and examples, and not measured."""


@pytest.mark.parametrize("path", [path for path in ANSWERS if (ROOT / path).parent.is_dir()])
def test_a_text_is_up_to_date(path: str) -> None:
    """Write outdated texts with ``make figures``."""
    file = ROOT / path
    assert file.read_text(encoding="utf-8") == ANSWERS[path](file.parent)


def test_outdated_texts_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "results" / "best_of", tmp_path / "results" / "best_of")
    assert outdated_answers(tmp_path) == []
    (tmp_path / "results" / "best_of" / "answer.md").write_text("old")
    (tmp_path / "results" / "best_of" / "both.md").unlink()
    stale = ["results/best_of/answer.md", "results/best_of/both.md"]
    assert outdated_answers(tmp_path) == stale
    write_answers(tmp_path)
    assert capsys.readouterr().out.splitlines() == [f"{path} (changed)" for path in stale]
    assert outdated_answers(tmp_path) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_measured_number_is_typed(page: Path) -> None:
    text = CODE.sub("", COPIED.sub("", page.read_text(encoding="utf-8")))
    assert set(re.findall(r"\d+(?:\.\d+)+", text)) <= CHOSEN


@pytest.mark.parametrize("folder", FOLDERS[1:], ids=lambda folder: folder.name)
def test_a_page_is_an_answer_a_figure_and_a_table(folder: Path) -> None:
    answer = (folder / "answer.md").read_text(encoding="utf-8")
    assert len(re.findall(r"\.(?=\s)", answer)) == 2
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page.partition("\n\n")[2].startswith(f"<!-- table: answer.md -->\n{answer}")
    assert len(re.findall(r"^!\[", page, re.MULTILINE)) == 1
    assert len(re.findall(r"^\| ---", page, re.MULTILINE)) == 1
