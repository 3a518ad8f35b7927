"""The documentation: its code runs, and every public name has its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, run_code

import swor

PAGES = sorted(DOCS.rglob("*.md"))
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
TESTED_ELSEWHERE = {"rl4co": "integrations/test_rl4co.py"}


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    if page.stem in TESTED_ELSEWHERE:
        tests = Path(__file__).parent / TESTED_ELSEWHERE[page.stem]
        assert f'run_code(DOCS / "{page.name}")' in tests.read_text(encoding="utf-8")
    else:
        run_code(page)


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
