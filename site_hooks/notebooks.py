"""Notebooks on the site: their formulas, their links, and what their pictures show."""

from __future__ import annotations

import html
import json
import posixpath
import re
from pathlib import Path
from typing import Any

# Formulas of a notebook, which nothing has marked; code is passed over.
IN_NOTEBOOK = re.compile(
    r"<(?P<code>pre|code|script|style)\b.*?</(?P=code)>|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$<>\n]+?)\$",
    re.DOTALL,
)
NO_TEXT = 'alt="No description has been provided for this image"'  # by nbconvert
NOTEBOOK_LINK = re.compile(r'href="(?!https?:)([^"#]+\.(?:md|ipynb))(#[^"]*)?"')


def on_page_content(content: str, page: Any, files: Any, **_: Any) -> str:
    """Mark the formulas of a notebook, link to pages of the site, and describe its pictures."""
    if not page.file.src_uri.endswith(".ipynb"):
        return content
    content = notebook_links(IN_NOTEBOOK.sub(_marked, content), page.file, files)
    for text in alternatives(Path(page.file.abs_src_path)):
        content = content.replace(NO_TEXT, f'alt="{html.escape(text)}"', 1)
    return content


def notebook_links(content: str, notebook: Any, files: Any) -> str:
    """Return the HTML of a notebook with links to pages of the site, which only Markdown pages get."""

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(notebook.src_uri), match[1]))
        file = files.get_file_from_path(path)
        if file is None:
            raise ValueError(
                f"{notebook.src_uri} links to {match[1]}, which the site does not have"
            )
        return f'href="{file.url_relative_to(notebook)}{match[2] or ""}"'

    return NOTEBOOK_LINK.sub(link, content)


def alternatives(notebook: Path) -> list[str]:
    """Return what the pictures of a notebook show, from the metadata of the cells that draw them."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [
        cell["metadata"]["alt"]
        for cell in cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def _marked(match: re.Match[str]) -> str:
    """Return a formula of a notebook as those of other pages are marked."""
    if match["block"]:
        return f'<div class="arithmatex">\\[{match["block"]}\\]</div>'
    return (
        f'<span class="arithmatex">\\({match["inline"]}\\)</span>' if match["inline"] else match[0]
    )
