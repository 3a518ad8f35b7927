"""The command ``claims``: evaluate all claims on the tables in ``results``, and write its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reproduction.claims.claim import Claim, Tables, evaluate
from reproduction.claims.listed import CLAIMS
from reproduction.claims.page import insert, print_findings
from reproduction.harness.folder import RunFolder

COMMITTED = {
    "rules": "rules/rules.csv",
    "variances": "bernoulli/variances.csv",
    "trajectory": "bernoulli/trajectory.csv",
    "monte-carlo": "bernoulli/monte_carlo.csv",
    "variance-2": "vae/2-variance-as-released/variance.csv",
    "variance-20": "vae/20-variance-as-released/variance.csv",
    "variance-2-all": "vae/2-variance/variance.csv",
    "variance-20-all": "vae/20-variance/variance.csv",
    "curves-2": "vae/2-mean-image/curves.csv",
    "curves-20": "vae/curves.csv",
    "curves-20-long": "vae/20-200-epochs/curves.csv",
    "tsp": "tsp/tsp20/gaps.csv",
    "tsp-confident": "tsp/start/gaps.csv",
    "tsp-variance": "tsp/variance/variance.csv",
    "tsp-policies": "tsp/variance/policies.csv",
    "lm": "lm/steps.csv",
    "lm-sparse": "lm/sparse/steps.csv",
    "best-of-tsp": "best_of/tsp/table.csv",
    "best-of-lm": "best_of/lm/table.csv",
    "rl4co": "rl4co/training.csv",
}
"""Tables in the folder of results by the names that claims use.

Those of Table 1 are measured as the paper's code does; ARSM and RELAX on the minibatch that it describes.
"""


@dataclass(frozen=True)
class ClaimsSettings:
    """Evaluate the claims of the paper and of this project on the committed tables of results.

    Prints the verdicts, and writes them into the table of README.md in the folder of results.
    """

    results: Path = Path("results")
    """folder of the tables, with the page README.md"""


def claims(settings: ClaimsSettings) -> None:
    """Print the verdicts, and write them into the page of the results."""
    from rich.console import Console

    path = settings.results / "README.md"
    text = path.read_text(encoding="utf-8")
    findings = evaluate(CLAIMS, committed(settings.results))
    RunFolder(settings.results).write_text(
        path.name, insert(text, findings, [links(claim) for claim in CLAIMS])
    )
    console = Console(highlight=False)
    print_findings(findings, console)
    console.print(f"The page is {path}", soft_wrap=True)


def committed(results: Path) -> Tables:
    """Return the tables in a folder of results."""
    return Tables({name: results / path for name, path in COMMITTED.items()})


def links(claim: Claim) -> str:
    """Return links from the page of the results to the tables of a claim."""
    paths = (COMMITTED[name] for name in claim.tables)
    return ", ".join(f"[{Path(path).parent}]({path})" for path in paths)
