"""The Python code on the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def python_blocks(page: Path) -> list[str]:
    """The blocks of Python of a page; none if it is not Markdown."""
    if page.suffix != ".md":
        return []
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python")
    return blocks


def run_code(page: Path) -> None:
    """Run the Python of a page, from top to bottom."""
    names: dict[str, object] = {"__name__": page.stem}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)
