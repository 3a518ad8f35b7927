"""Formulas as MathML, which browsers show without a script."""

from __future__ import annotations

import html
import re
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# A formula in the title of a heading, as the table of contents has it.
IN_TITLE = re.compile(r"\\\((.+?)\\\)")
PUNCTUATED = re.compile(r'<math [^>]*display="inline">(?:(?!</math>).)*</math>[.,;:)]+', re.DOTALL)
WHOLE = r'<span class="whole">\g<0></span>'
REPLACEMENTS = (  # signs that common fonts lack, or draw too small to be seen
    (re.compile(r"<mi>&#x029F5;</mi>"), "<mo>\\</mo>"),
    (re.compile(r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>"), r"<mrow>\1<mo>′</mo></mrow>"),
    (re.compile(r"<mi>(log|arg|tr)</mi>"), r"<mi>\1</mi><mspace width='0.17em'/>"),
    # Relations, which need space around them.
    (re.compile(r"<mi>&#x0007E;</mi>"), "<mo>∼</mo>"),
    (re.compile(r"<mi>:</mi><mo>&#x0003D;</mo>"), "<mo>≔</mo>"),
)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Convert the formulas of a page and of its table of contents."""
    _convert_titles(page.toc)
    return PUNCTUATED.sub(WHOLE, FORMULA.sub(_formula, content))


def _convert_titles(items: Any) -> None:
    """Convert the formulas of a table of contents, which has the titles of headings as they are written."""
    for item in items:
        item.title = IN_TITLE.sub(lambda formula: mathml(formula[1], "inline"), item.title)
        _convert_titles(item.children)


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
