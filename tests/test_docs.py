"""The documentation: its code runs, and every public name has its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import swor

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": page.stem}
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == text.count("```python")
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


def test_every_public_name_is_documented_once() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    documented = re.findall(r"^::: swor\.(\w+)$", text, re.MULTILINE)
    assert sorted(documented) == sorted(swor.__all__)


def test_every_picture_says_what_it_shows() -> None:
    for page in PAGES:
        for alternative in re.findall(r"!\[(.*?)\]", page.read_text(encoding="utf-8")):
            assert len(alternative) > 20, page


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+\.(?:md|png))", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
