"""The syntax of docstrings on the site: examples, shapes, references, and the table of public names."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from itertools import zip_longest
from types import ModuleType
from typing import Any

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

# Sphinx roles in docstrings, which Markdown does not know.
ROLE = re.compile(r":(?:func|class|meth|data|mod):(?=<)")
# A paragraph of a References section: lines that start with a bar, the last of which may be an address.
REFERENCE = re.compile(r"<p>\| ((?:[^<]|<(?!/p>))*?)(?:\n\| (https?://\S+))?</p>")


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
    """Add the extension to those of all pages and docstrings."""
    config.markdown_extensions.append(Docstrings())
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Insert the table of public names; a name without a page fails the build."""
    return (
        markdown.replace("<!-- names -->", names()) if page.file.src_uri == "api.md" else markdown
    )


def on_page_content(content: str, **_: Any) -> str:
    """Link references, and remove roles."""
    return REFERENCE.sub(_reference, ROLE.sub("", content))


def _reference(match: re.Match[str]) -> str:
    text, address = match[1].replace("\n| ", " "), match[2]
    return f'<p><a href="{address}">{text}</a></p>' if address else f"<p>{text}</p>"


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
