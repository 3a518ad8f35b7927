"""What building the documentation adds to mkdocs: formulas without a network, the table of names."""

from __future__ import annotations

import html
import re
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# Roles in docstrings, which Markdown does not know.
ROLE = re.compile(r":(?:func|class|meth|data|mod):(?=<)")
CLEARER = (  # where common fonts lack a sign, or set it too small to be seen
    (re.compile(r"<mi>&#x029F5;</mi>"), "<mo>\\</mo>"),
    (re.compile(r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>"), r"<mrow>\1<mo>′</mo></mrow>"),
    (re.compile(r"<mi>(log|arg|tr)</mi>"), r"<mi>\1</mi><mspace width='0.17em'/>"),
)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which browsers show by themselves."""
    return ROLE.sub("", FORMULA.sub(_formula, content))


def _formula(match: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    tag, latex = match.groups()
    display = "block" if tag == "div" else "inline"
    formula = convert(html.unescape(latex).replace(r"\arg", r"\text{arg}"), display=display)
    for sign, clearer in CLEARER:
        formula = sign.sub(clearer, formula)
    return f"<{tag}>{formula}</{tag}>"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The list of all public names, in the page of the API: one without a page fails the build."""
    if page.file.src_uri != "api.md":
        return markdown
    return markdown.replace("<!-- names -->", names())


def names() -> str:
    """A table of all public names with the first line of what they say of themselves."""
    import swor

    lines = ["| name | |", "| --- | --- |"]
    for name in swor.__all__:
        value = getattr(swor, name)
        said = (value.__doc__ or "") if callable(value) else "All estimators by name."
        first = said.strip().split("\n\n")[0].replace("\n", " ").replace("|", r"\|")
        lines.append(f"| [`{name}`][swor.{name}] | {' '.join(first.split())} |")
    return "\n".join(lines)
