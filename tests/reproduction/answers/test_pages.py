"""Pages of results show the present content of the tables that commands wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.answers.listed import filled, outdated_pages
from reproduction.harness.errors import UserError

ROOT = Path(__file__).parents[3]
PAGE = "# Title\n\n<!-- table: sub/a.md -->\nold\n<!-- end of table -->\n\nText.\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "tsp"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.md").write_text("| k |\n")
    (folder / "README.md").write_text(PAGE)
    return folder / "README.md"


def test_a_table_is_copied_into_its_place(page: Path, tmp_path: Path) -> None:
    new = PAGE.replace("old\n", "| k |\n")
    assert filled(page) == new
    assert outdated_pages(tmp_path) == {page: new}
    page.write_text(new)
    assert outdated_pages(tmp_path) == {}


def test_a_missing_table_is_named(page: Path) -> None:
    (page.parent / "sub" / "a.md").unlink()
    with pytest.raises(UserError, match=r"sub/a\.md"):
        filled(page)


def test_committed_pages_are_up_to_date() -> None:
    """Fill outdated pages with ``make figures``."""
    assert not outdated_pages(ROOT)
