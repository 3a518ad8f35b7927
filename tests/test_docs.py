"""The documentation: its code runs, and every public name has its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, run_code

import swor

ROOT = DOCS.parent
PAGES = sorted(DOCS.rglob("*.md"))
RESULTS = sorted((ROOT / "results").glob("*/README.md"))
EVERYTHING = [ROOT / "README.md", *PAGES, *RESULTS]
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
    for page in EVERYTHING:
        for alternative in re.findall(r"!\[(.*?)\]", page.read_text(encoding="utf-8")):
            assert len(alternative) > 20, page


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", EVERYTHING, ids=name)
def test_links_lead_to_files(page: Path) -> None:
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [*PAGES, *RESULTS], ids=name)
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if anchor:
            assert anchor in anchors(page.parent / target if target else page), (target, anchor)


def anchors(page: Path) -> list[str]:
    """The anchors of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_publication_can_be_found() -> None:
    text = (ROOT / "docs" / "bibliography.md").read_text(encoding="utf-8")
    entries = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    without = [entry.partition("\n")[0] for entry in entries if "](https://" not in entry]
    assert without == ["Murthy 1957"]  # volume and pages only: we could verify no address
