"""The documentation: its code runs, and every public name has its place."""

from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from documentation import DOCS, python_blocks, run_code

import swor

ROOT = DOCS.parent
PAGES = sorted(DOCS.rglob("*.md"))
RESULTS = sorted(
    p for name in ("README", "details") for p in (ROOT / "results").glob(f"*/{name}.md")
)
EVERYTHING = [ROOT / "README.md", *PAGES, *RESULTS]
SOURCES = [path for part in ("swor", "reproduction") for path in (ROOT / part).rglob("*.py")]
# Run in tests/integrations/test_rl4co.py, in an environment of its own, and in tests/docs/test_hooks.py.
ELSEWHERE = ("rl4co", "in_your_trainer")
WITH_CODE = [page for page in PAGES if python_blocks(page) and page.stem not in ELSEWHERE]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    run_code(page)


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_fits_its_column(page: Path) -> None:
    """On a screen of 1280 pixels, 90 characters fit."""
    lines = "\n".join(python_blocks(page)).splitlines()
    assert [line for line in lines if len(line) > 90] == []


def test_every_public_name_is_documented_once() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    documented = re.findall(r"^::: swor\.(\w+)$", text, re.MULTILINE)
    assert sorted(documented) == sorted(swor.__all__)


def test_every_picture_says_what_it_shows() -> None:
    for page in EVERYTHING:
        pictures = re.findall(r"!\[(.*?)\]\((\S+?)\)", page.read_text(encoding="utf-8"))
        for alternative, target in pictures:
            assert len(alternative) > 20 or "badge" in target, (page, target)


def hook(name: str) -> dict[str, Any]:
    """What a file of additions to the build of the site defines."""
    return runpy.run_path(str(ROOT / "site_hooks" / f"{name}.py"))


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


TOP = [ROOT / "results" / "README.md", ROOT / "results" / "details.md"]
# A link to a file of the repository; the hosting site itself has the pages of "actions".
LINK = re.compile(r"\]\((?!https?:|[./]*/actions/)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", [*EVERYTHING, *TOP], ids=name)
def test_links_lead_to_files(page: Path) -> None:
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [*EVERYTHING, *TOP], ids=name)
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if anchor:
            assert anchor in anchors(page.parent / target if target else page), (target, anchor)


def anchors(page: Path) -> list[str]:
    """The anchors of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("docs/faq.md", "[a](choosing.md#measure)", "[a](choosing.md#measure)"),
        ("docs/faq.md", "[a](../results/tsp/README.md)", "[a](results/tsp/README.md)"),
        ("docs/estimators/sums.md", "[a](../choosing.md)", "[a](../choosing.md)"),
        ("results/tsp/README.md", "[a](../../docs/faq.md#k)", "[a](../../faq.md#k)"),
        ("results/README.md", "[a](tsp/README.md)", "[a](tsp/README.md)"),
        (
            "results/tsp/README.md",
            "![a](../../docs/assets/figure1.png)",
            "![a](../../assets/figure1.png)",
        ),
        ("docs/index.md", "[a](../results/README.md)", "[a](results/README.md)"),
        ("results/tsp/README.md", "[a](best_of_k/20/answer.md)", "a"),
        ("results/tsp/details.md", "![a](start/gap-steps.png)", "![a](start/gap-steps.png)"),
        ("results/README.md", "[the code](../swor/types.py)", "the code"),
        ("docs/faq.md", "[a](https://example.org)", "[a](https://example.org)"),
    ],
)
def test_links_of_the_repository_become_those_of_the_site(
    page: str, link: str, expected: str
) -> None:
    hooks = hook("repository")
    assert hooks["site_links"](link, ROOT / page, None) == expected


def test_files_that_the_site_lacks_are_links_to_the_repository() -> None:
    hooks = hook("repository")
    page, home = ROOT / "results" / "README.md", "https://example.org/swor"
    link = hooks["site_links"]("[the code](../swor/types.py)", page, home)
    assert link == "[the code](https://example.org/swor/blob/main/swor/types.py)"


@pytest.mark.parametrize("there", [True, False])
def test_the_report_of_a_run_is_a_page_of_the_site(there: bool, tmp_path: Path) -> None:
    hooks = hook("repository")
    hooks["on_config"].__globals__["ROOT"] = tmp_path
    if there:
        (tmp_path / hooks["REPORT"]).parent.mkdir(parents=True)
        (tmp_path / hooks["REPORT"]).touch()
    config = SimpleNamespace(markdown_extensions=[], nav=[{"Home": "index.md"}, {"Results": []}])
    hooks["on_config"](config)
    assert config.nav[1]["Results"] == [{"Report of a short run": hooks["REPORT"]}] * there


@pytest.mark.parametrize(
    ("url", "picture", "wide"),
    [
        ("results/tsp/details/", "../variance/variance.png", True),
        ("best_of/", "../assets/best_of.png", True),
        ("results/vae/details/", "../2-mean-image/curves.png", True),  # two panels
        ("", "assets/best_of_k.png", False),  # one panel with large labels
    ],
)
def test_a_wide_picture_scrolls_in_its_own_box(url: str, picture: str, wide: bool) -> None:
    hooks = hook("layout")
    match = hooks["PICTURE"].fullmatch(f'<img alt="a" src="{picture}">')
    assert ('class="wide"' in hooks["_scrollable"](match, url)) is wide


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            '<span class="doc doc-object-name doc-function-name">swor.trl.a_b</span>',
            '<span class="doc doc-object-name doc-function-name">swor.<wbr>trl.<wbr>a_<wbr>b</span>',
        ),
        ("<code>run --k 4</code>", '<code>run <span class="whole">--k</span> 4</code>'),
        ("<code>a-b</code>", "<code>a-b</code>"),
        ("<pre><span></span><code>run --k 4</code></pre>",) * 2,
        (f"<code>{'a' * 30}.b_c</code>", f"<code>{'a' * 30}.<wbr>b_<wbr>c</code>"),
        (
            "<table><td>2.6e-07</td></table>",
            '<table><td><span class="whole">2.6e-07</span></td></table>',
        ),
        (
            "<table><td><code>a_b</code></td></table>",
            "<table><td><code>a_<wbr>b</code></td></table>",
        ),
    ],
)
def test_names_break_at_their_parts_and_numbers_and_options_nowhere(
    content: str, expected: str
) -> None:
    hooks = hook("layout")
    assert hooks["breaks"](content) == expected


@pytest.mark.parametrize(("columns", "wide"), [(4, False), (5, True)])
def test_long_texts_of_a_table_that_scrolls_get_room(columns: int, wide: bool) -> None:
    hooks = hook("layout")
    head, text = "<th>a</th>" * columns, "a claim " * 10
    found = hooks["breaks"](f"<table><thead>{head}</thead><td>{text}</td><td>agrees</td></table>")
    assert (f'<td class="long">{text}</td>' in found) is wide and "<td>agrees</td>" in found


def test_formulas_of_a_table_of_contents_are_shown_as_formulas() -> None:
    pytest.importorskip("latex2mathml")
    hooks = hook("formulas")
    child = SimpleNamespace(title=r"MNIST, \(10^{2}\)", children=[])
    hooks["_convert_titles"]([SimpleNamespace(title="Training", children=[child])])
    assert child.title.startswith("MNIST, <math") and "\\(" not in child.title


def test_links_of_a_notebook_lead_to_pages_of_the_site() -> None:
    hooks = hook("notebooks")
    there = SimpleNamespace(url_relative_to=lambda other: "../../best_of/")
    files = SimpleNamespace(get_file_from_path={"best_of.md": there}.get)
    notebook = SimpleNamespace(src_uri="tutorials/policy.ipynb")
    link = partial(hooks["notebook_links"], notebook=notebook, files=files)
    assert link('<a href="../best_of.md#m">') == '<a href="../../best_of/#m">'
    assert link('<a href="https://a.org/b.md">') == '<a href="https://a.org/b.md">'
    with pytest.raises(ValueError, match="best_off"):
        link('<a href="../best_off.md">')


def test_every_publication_can_be_found() -> None:
    text = (ROOT / "docs" / "bibliography.md").read_text(encoding="utf-8")
    entries = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    without = [entry.partition("\n")[0] for entry in entries if "](https://" not in entry]
    assert without == ["Murthy 1957"]  # volume and pages only: we could verify no address


def test_equations_have_their_printed_numbers() -> None:
    """LaTeX labels are invisible to readers of the paper."""
    for path in [*EVERYTHING, *SOURCES]:
        assert not re.search(r"\beq:", path.read_text(encoding="utf-8")), path


@pytest.fixture(scope="module")
def docstrings() -> dict[str, str]:
    """The docstrings of all public names, constants included."""
    found: dict[str, str] = hook("docstrings")["docstrings"]()
    return found


def test_docstrings_start_with_a_plain_sentence(docstrings: dict[str, str]) -> None:
    assert sorted(docstrings) == sorted(swor.__all__)
    for public, text in docstrings.items():
        first, _, rest = text.partition("\n")
        assert re.fullmatch(r"[A-Z][^$\\]*\.", first), (public, first)
        assert not rest or rest.startswith("\n"), public


def test_docstrings_of_estimators_end_with_references(docstrings: dict[str, str]) -> None:
    for estimator in swor.ESTIMATORS:
        _, *sections = docstrings[estimator].split("\n\nReferences:\n")
        assert len(sections) == 1, estimator
        for reference in sections[0].split("\n\n"):
            lines = reference.split("\n")
            assert all(line.startswith("    | ") for line in lines), reference
            assert "    | https://" in lines[-1] or "(Murthy, 1957)" in lines[-1], reference


def test_references_are_in_the_bibliography() -> None:
    bibliography = (ROOT / "docs" / "bibliography.md").read_text(encoding="utf-8")
    for path in SOURCES:
        for address in re.findall(r"^ +\| (https://\S+)$", path.read_text("utf-8"), re.MULTILINE):
            assert f"({address})" in bibliography, (path, address)
