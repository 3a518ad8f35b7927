"""The pages of ``results/`` have the numbers of the tables that commands wrote beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
PAGES = ("README.md", "details.md")
TABLES = sorted(path for path in RESULTS.rglob("*.md") if path.name not in (*PAGES, "answer.md"))


def page_of(table: Path) -> str:
    """The text of the nearest page above a table and of its details, without emphasis."""
    folder = next(p for p in table.parents if (p / "README.md").exists())
    pages = [folder / name for name in PAGES if (folder / name).exists()]
    return "".join(page.read_text(encoding="utf-8") for page in pages).replace("**", "")


def numbers(line: str) -> str:
    """The cells of a row from its first number on; the labels before it may be other words."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    first = next((i for i, cell in enumerate(cells) if re.match(r"[-−–]?[\d–]", cell)), len(cells))
    return " | ".join(cells[first:]).rstrip("| ")


@pytest.mark.parametrize("table", TABLES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_page_has_the_numbers_of_its_tables(table: Path) -> None:
    page = page_of(table)
    rows = [numbers(line) for line in table.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row and not set(row) <= set("-| ")]
    assert rows
    missing = [row for row in rows if row not in page]
    assert not missing, f"the page of {table} lacks these rows: {missing}"
