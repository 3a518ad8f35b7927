"""Tables in the pages of results: copied from the files that commands wrote, between two comments.

A page says where, and the command ``figures`` copies the file there:

    <!-- table: best_of_k/20/best_of_k.md -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
from pathlib import Path

from reproduction.harness.errors import UserError

TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def filled(page: Path) -> str:
    """Return the text of a page with the present content of its tables."""

    def copied(place: re.Match[str]) -> str:
        path = page.parent / place[2]
        if not path.is_file():
            raise UserError(
                f"{page} has a place for the table {place[2]}, and there is no {path}; expected it. Copy "
                "it from the folder of the run that wrote it, or remove the place."
            )
        return f"{place[1]}{path.read_text(encoding='utf-8')}{place[3]}"

    return TABLE.sub(copied, page.read_text(encoding="utf-8"))


def outdated_pages(root: Path) -> dict[Path, str]:
    """Return the pages of results whose tables are others than those in the files, with their new text."""
    pages = {page: filled(page) for page in sorted((root / "results").rglob("*.md"))}
    return {page: new for page, new in pages.items() if new != page.read_text(encoding="utf-8")}
