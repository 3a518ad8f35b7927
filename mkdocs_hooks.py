"""Additions to the documentation build: formulas, examples, shapes, references, the public names."""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import json
import posixpath
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

ROOT = Path(__file__).parent
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
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# Formulas of a notebook, which nothing has marked; code is passed over.
IN_NOTEBOOK = re.compile(
    r"<(?P<code>pre|code|script|style)\b.*?</(?P=code)>|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$<>\n]+?)\$",
    re.DOTALL,
)
NO_TEXT = 'alt="No description has been provided for this image"'  # by nbconvert
NOTEBOOK_LINK = re.compile(r'href="(?!https?:)([^"#]+\.(?:md|ipynb))(#[^"]*)?"')
# A formula in the title of a heading, as the table of contents has it.
IN_TITLE = re.compile(r"\\\((.+?)\\\)")
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
PUNCTUATED = re.compile(r'<math [^>]*display="inline">(?:(?!</math>).)*</math>[.,;:)]+', re.DOTALL)
WHOLE = r'<span class="whole">\g<0></span>'
# The dotted name in a heading of the reference.
NAME = re.compile(r'(?<=<span class="doc doc-object-name )([^>]*>)([^<]+)')
# Sphinx roles in docstrings, which Markdown does not know.
ROLE = re.compile(r":(?:func|class|meth|data|mod):(?=<)")
# A paragraph of a References section: lines that start with a bar, the last of which may be an address.
REFERENCE = re.compile(r"<p>\| ((?:[^<]|<(?!/p>))*?)(?:\n\| (https?://\S+))?</p>")
# A link or a picture that leads to a file of the repository, with the anchor of a heading.
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]+)?\)")
REPLACEMENTS = (  # signs that common fonts lack, or draw too small to be seen
    (re.compile(r"<mi>&#x029F5;</mi>"), "<mo>\\</mo>"),
    (re.compile(r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>"), r"<mrow>\1<mo>′</mo></mrow>"),
    (re.compile(r"<mi>(log|arg|tr)</mi>"), r"<mi>\1</mi><mspace width='0.17em'/>"),
    # Relations, which need space around them.
    (re.compile(r"<mi>&#x0007E;</mi>"), "<mo>∼</mo>"),
    (re.compile(r"<mi>:</mi><mo>&#x0003D;</mo>"), "<mo>≔</mo>"),
)


class Examples(Preprocessor):
    """Fences doctests, whose prompts Markdown would take for nested quotations."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines with a fence around every doctest."""
        fenced: list[str] = []
        inside = False
        for line in [*lines, ""]:
            starts, ends = not inside and line.startswith(">>> "), inside and not line.strip()
            fenced += ["```pycon"] * starts + ["```"] * ends + [line]
            inside = starts or (inside and not ends)
        return fenced[:-1]


class Shapes(InlineProcessor):
    """Keeps the star of a shape such as (*batch, k), which Markdown would take for emphasis."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        """Return the match as plain text, and where it starts and ends."""
        return m[0], m.start(0), m.end(0)


class Docstrings(Extension):
    """The syntax of our docstrings that Markdown does not know."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register what this extension adds."""
        md.preprocessors.register(Examples(md), "examples", 40)  # before fences are read
        md.inlinePatterns.register(Shapes(r"\(\*(?=\w)", md), "shapes", 185)  # after inline code


def on_config(config: Any) -> Any:
    """Add the extension to those of all pages and docstrings, and the report of a run, if there is one."""
    config.markdown_extensions.append(Docstrings())
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


def on_page_content(content: str, page: Any, files: Any, **_: Any) -> str:
    """Convert formulas to MathML, which browsers show without a script, and link references."""
    if page.file.src_uri.endswith(".ipynb"):
        content = notebook_links(IN_NOTEBOOK.sub(_marked, content), page.file, files)
        for text in alternatives(Path(page.file.abs_src_path)):
            content = content.replace(NO_TEXT, f'alt="{html.escape(text)}"', 1)
    content = breaks(content)
    content = PICTURE.sub(lambda picture: _scrollable(picture, page.url), content)
    _convert_titles(page.toc)
    if page.file.src_uri.startswith("results/"):
        content = f'<div class="results">{content}</div>'
    content = PUNCTUATED.sub(WHOLE, FORMULA.sub(_formula, content))
    return REFERENCE.sub(_reference, ROLE.sub("", content))


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


def _convert_titles(items: Any) -> None:
    """Convert the formulas of a table of contents, which has the titles of headings as they are written."""
    for item in items:
        item.title = IN_TITLE.sub(lambda formula: mathml(formula[1], "inline"), item.title)
        _convert_titles(item.children)


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


def _formula(match: re.Match[str]) -> str:
    tag, latex = match.groups()
    formula = mathml(html.unescape(latex), "block" if tag == "div" else "inline")
    return f'<{tag} class="formula">{formula}</{tag}>' if tag == "div" else formula


def mathml(latex: str, display: str) -> str:
    """Return a formula as MathML, with signs that common fonts have."""
    from latex2mathml.converter import convert

    formula = str(convert(latex.replace(r"\arg", r"\text{arg}"), display=display))
    for sign, clearer in REPLACEMENTS:
        formula = sign.sub(clearer, formula)
    return formula


def _reference(match: re.Match[str]) -> str:
    text, address = match[1].replace("\n| ", " "), match[2]
    return f'<p><a href="{address}">{text}</a></p>' if address else f"<p>{text}</p>"


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Make links of the repository those of the site, and insert the table of public names."""
    path = page.file.src_uri
    if path == "api.md":  # a name without a page fails the build
        markdown = markdown.replace("<!-- names -->", names())
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


def names() -> str:
    """Return a table of all public names with the first line of each docstring."""
    import swor

    lines = ["| name | description |", "| --- | --- |"]
    documented = docstrings()
    for name in swor.__all__:
        first = " ".join(documented[name].split("\n\n")[0].split()).replace("|", r"\|")
        lines.append(f"| [`{name}`][swor.{name}] | {first} |")
    return "\n".join(lines)


def docstrings() -> dict[str, str]:
    """Return the docstring of every public name; a name without one raises an error."""
    import swor

    found: dict[str, str] = {}
    for statement in ast.parse(inspect.getsource(swor)).body:
        module = statement.module if isinstance(statement, ast.ImportFrom) else None
        if module is not None and module.startswith("swor."):
            defined = definitions(importlib.import_module(module))
            found |= {alias.name: defined[alias.name] for alias in statement.names}
    return found


def definitions(module: ModuleType) -> dict[str, str]:
    """Return the docstrings of functions and classes, and the strings that follow constants."""
    body = ast.parse(inspect.getsource(module)).body
    found: dict[str, str | None] = {}
    for statement, following in zip_longest(body, body[1:]):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = ast.get_docstring(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            text = following.value if isinstance(following, ast.Expr) else None
            if isinstance(target, ast.Name) and isinstance(text, ast.Constant):
                found[target.id] = inspect.cleandoc(str(text.value))
    return {name: text for name, text in found.items() if text}
