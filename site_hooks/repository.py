"""What lies beside docs/ and belongs to the site, and links to the rest of the repository."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parent.parent
# What lies beside docs/ and belongs to the site: pages of results with their pictures, examples,
# and the report of `make reproduce`, if there is one.
REPORT = "runs/reproduce/report.html"
BESIDE = (
    "results/**/README.md",
    "results/**/details.md",
    "results/**/*.png",
    "examples/*.py",
    REPORT,
)
# A link or a picture that leads to a file of the repository, with the anchor of a heading.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]+)?\)")


def on_config(config: Any) -> Any:
    """Add the report of a run to the navigation, if there is one."""
    if (ROOT / REPORT).is_file():
        (results,) = (part["Results"] for part in config.nav if "Results" in part)
        results.append({"Report of a short run": REPORT})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files beside docs/ to the site, under their own paths."""
    from mkdocs.structure.files import File

    for name in sorted(beside()):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


@cache
def beside() -> frozenset[str]:
    """Return the paths of the files beside docs/ that the site has."""
    found = (path for pattern in BESIDE for path in ROOT.glob(pattern))
    return frozenset(path.relative_to(ROOT).as_posix() for path in found)


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Make links of the repository those of the site."""
    path = page.file.src_uri
    home = path if path.startswith("results/") else f"docs/{path}"
    return site_links(markdown, ROOT / home, config.repo_url)


def site_links(markdown: str, page: Path, repository: str | None) -> str:
    """Return a page whose links between docs/ and what lies beside it lead to the same pages on the site.

    On the site, the pages of docs/ lie beside results/ and examples/. A file that the site does not have is a
    link to the repository, if its address is known, and plain text otherwise.
    """

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = (page.parent / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            return match[0]
        name = path.relative_to(ROOT).as_posix()
        if not path.is_file() or not (name.startswith("docs/") or name in beside()):
            return f"[{text}]({repository.rstrip('/')}/blob/main/{name})" if repository else text
        here = PurePosixPath(page.relative_to(ROOT).as_posix().removeprefix("docs/")).parent
        return f"[{text}]({posixpath.relpath(name.removeprefix('docs/'), here)}{anchor})"

    return LINK.sub(link, markdown)
