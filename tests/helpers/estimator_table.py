"""The table of all estimators, from the registry: `python tests/helpers/estimator_table.py PAGE`."""

import re
import sys
from pathlib import Path

import torch
from torch.distributions import Bernoulli, Independent, OneHotCategorical

import swor
from swor.estimators.estimator import Estimator

HEADER = (
    "| name | unbiased | distributions | evaluations | learns | reference |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)
BLOCK = re.compile(re.escape(HEADER) + r"(\|.*\n)*")
CITATION = re.compile(
    r"(?P<author>(?:De )?[^\W\d_]+)(?: et al\.| and [^\W\d_]+(?:-[^\W\d_]+)?)? \((?P<year>\d{4}[a-z]?)\)"
    r"(?:, (?:equation|chapter)[^;]*)?"
)
PAGES = Path(__file__).parents[2] / "docs" / "estimators"
PRODUCT = Independent(OneHotCategorical(logits=torch.zeros(3, 10)), 1)
KINDS = {
    "categorical": OneHotCategorical(logits=torch.zeros(10)),
    "products": PRODUCT,
    "binary": Independent(Bernoulli(logits=torch.zeros(3)), 1),
}


def table() -> str:
    """One row for every entry of ESTIMATORS."""
    pages = documented()
    return HEADER + "".join(row(name, entry, pages) for name, entry in swor.ESTIMATORS.items())


def row(name: str, entry: Estimator, pages: dict[str, str]) -> str:
    """The row of an estimator."""
    kinds = [kind for kind, dist in KINDS.items() if entry.defined_for(dist)]
    dist = KINDS[kinds[0]] if "products" not in kinds else PRODUCT
    cells = (
        name_link(name, pages),
        "yes" if entry.unbiased else "no",
        "all" if len(kinds) == len(KINDS) else ", ".join(kinds),
        str(entry.evaluations(4, dist)),
        "yes" if entry.learns else "",
        cite(entry.equation),
    )
    return f"| {' | '.join(cells)} |\n"


def documented() -> dict[str, str]:
    """The page of every estimator, beside the table."""
    return {
        name: page.name
        for page in PAGES.glob("*.md")
        for name in re.findall(r"^::: swor\.(\w+)$", page.read_text("utf-8"), re.MULTILINE)
    }


def name_link(name: str, pages: dict[str, str]) -> str:
    """The name of an estimator as a link to its page; one without a page raises an error."""
    return f"[`{name}`]({pages[name]})"


def cite(reference: str) -> str:
    """A reference whose citations, such as "Raj (1956)", are links to the bibliography."""
    return "; ".join(
        f"[{part}](../bibliography.md#{anchor(part)})" for part in reference.split("; ")
    )


def anchor(citation: str) -> str:
    """The anchor of a citation in the bibliography, such as ``raj-1956``."""
    match = CITATION.fullmatch(citation)
    if match is None:
        raise ValueError(
            f"the citation is {citation!r}; expected the form 'Kool et al. (2020), equation (17)', "
            "and '; ' between several. Change the reference in swor/estimators/registry.py."
        )
    return f"{match['author'].lower().replace(' ', '-')}-{match['year']}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(BLOCK.sub(lambda _: table(), path.read_text("utf-8")), "utf-8")
