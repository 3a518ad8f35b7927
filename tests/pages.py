"""The code on the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def run_code(page: Path) -> None:
    """Run the Python of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": page.stem}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python")
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
