"""What fits a narrow screen: where words may break, and which pictures and columns get room."""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# A picture of the repository, and the width in pixels from which on its labels are too small on a phone. They
# are too small in a picture of several panels as well, which is higher than wide.
PICTURE = re.compile(r'<img [^>]*?src="([^":]+\.png)"[^>]*>')
WIDE = 1080
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
# A table of so many columns scrolls on a phone, so a text of so many characters gets a column of some width,
# and a number stays beside its standard error.
COLUMNS, LONG = 5, 32
WITH_ERROR = re.compile(r"[^\s<>]+ ± [^\s<>;,]+")
# What a browser would break after a hyphen: a number of a table, and an option or a minus sign in code;
# and after a formula, before its punctuation.
NUMBER = re.compile(r"[-−]?\d[\d.]*e-\d+")
INLINE = re.compile(r"(?<!</span>)<code>(?:[^<]|<wbr>)+</code>")  # a block has a span before it
OPTION = re.compile(r"(?<![\w-])--?\(?\w[\w-]*")
LONG_WORD = re.compile(r"[^\s<>]{34,}")  # wider than the screen of a phone
SEAM = re.compile(r"[._(=/](?=[A-Za-z])")
WHOLE = r'<span class="whole">\g<0></span>'
# The dotted name in a heading of the reference.
NAME = re.compile(r'(?<=<span class="doc doc-object-name )([^>]*>)([^<]+)')


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Let long words break, give wide pictures boxes of their own, and mark the pages of results."""
    content = PICTURE.sub(lambda picture: _scrollable(picture, page.url), breaks(content))
    results = page.file.src_uri.startswith("results/")
    return f'<div class="results">{content}</div>' if results else content


def breaks(content: str) -> str:
    """Let long names break after dots and underscores, and keep numbers and options whole."""
    content = NAME.sub(lambda name: name[1] + SEAM.sub(r"\g<0><wbr>", name[2]), content)
    content = TABLE.sub(lambda table: _table(table[0]), content)
    return INLINE.sub(lambda code: OPTION.sub(WHOLE, LONG_WORD.sub(_seams, code[0])), content)


def _seams(word: re.Match[str]) -> str:
    return SEAM.sub(r"\g<0><wbr>", word[0])


def _table(table: str) -> str:
    """Let the names of a table break after underscores, keep its numbers whole, and mark its long texts."""
    table = NUMBER.sub(WHOLE, CODE.sub(lambda code: code[0].replace("_", "_<wbr>"), table))
    if table.count("<th") <= COLUMNS:  # one of them is <thead>
        return table
    return WITH_ERROR.sub(r'<span class="error">\g<0></span>', CELL.sub(_cell, table))


def _cell(cell: re.Match[str]) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", "", cell[1]))
    return f'<td class="long">{cell[1]}</td>' if len(text.strip()) >= LONG else cell[0]


def _scrollable(picture: re.Match[str], url: str) -> str:
    """Put a wide picture into a box of its own, which scrolls on a phone."""
    path = posixpath.normpath(posixpath.join(url, picture[1]))
    (file,) = (place / path for place in (ROOT, ROOT / "docs") if (place / path).is_file())
    width, height = png_size(file)
    half = width // 2  # figures are drawn with 150 dots per inch
    box = f'<span class="wide" style="--half: {half}px">{picture[0]}</span>'
    return box if width >= WIDE or height > width else picture[0]


def png_size(file: Path) -> tuple[int, int]:
    """Return the width and the height of a PNG file, which stand in its first chunk."""
    start = file.read_bytes()[:24]
    return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
