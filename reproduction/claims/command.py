"""The command ``claims``: evaluate all claims on the tables in ``results``, and write its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from reproduction.claims.claim import Claim, Finding, Tables, Verdict, evaluate
from reproduction.claims.listed import CLAIMS
from reproduction.claims.page import CONVENTION, print_findings, summary
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.harness.tables import markdown

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"

COMMITTED = {
    "rules": "rules/rules.csv",
    "variances": "bernoulli/variances.csv",
    "trajectory": "bernoulli/trajectory.csv",
    "monte-carlo": "bernoulli/monte_carlo.csv",
    "variance-2": "vae/2-variance-as-released/variance.csv",
    "variance-20": "vae/20-variance-as-released/variance.csv",
    "variance-2-new-minibatches": "vae/2-variance-as-released/variance.csv",
    "variance-2-all": "vae/2-variance/variance.csv",
    "variance-20-all": "vae/20-variance/variance.csv",
    "curves-2": "vae/2-mean-image/curves.csv",
    "curves-20": "vae/curves.csv",
    "curves-20-long": "vae/20-200-epochs/curves.csv",
    "tsp": "tsp/tsp20/gaps.csv",
    "tsp-confident": "tsp/start/gaps.csv",
    "tsp-second-confident": "tsp/second-start/gaps.csv",
    "tsp-variance": "tsp/variance/variance.csv",
    "tsp-policies": "tsp/variance/policies.csv",
    "tsp-released": "tsp/released/variance.csv",
    "tsp-released-policies": "tsp/released/policies.csv",
    "tsp-continued-1e-4": "tsp/continued-1e-4/paired.csv",
    "tsp-continued-1e-5": "tsp/continued-1e-5/paired.csv",
    "control-variates": "vae/20-control/variance.csv",
    "best-of-k": "tsp/best_of_k/20/best_of_k.csv",
    "lm": "lm/steps.csv",
    "lm-sparse": "lm/sparse/steps.csv",
    "best-of-tsp": "best_of/tsp/table.csv",
    "best-of-lm": "best_of/lm/table.csv",
    "rl4co": "rl4co/training.csv",
    "rl4co-best-of-k": "rl4co/best_of_k.csv",
    "pronunciation-variance": "pronunciation/variance.csv",
    "pronunciation-pass": "pronunciation/pass.csv",
    "pronunciation-training": "pronunciation/training/curves.csv",
}
"""Tables in the folder of results by the names that claims use.

Those of Table 1 are measured as the paper's code does; ARSM and RELAX on the minibatch that it describes.
"""


@dataclass(frozen=True)
class ClaimsSettings:
    """Evaluate the claims of the paper and of this project on the committed tables of results.

    Prints the verdicts, and writes them into the table of README.md in the folder of results, and the
    criteria into that of details.md.
    """

    results: Path = Path("results")
    """folder of the tables, with the pages README.md and details.md"""


def claims(settings: ClaimsSettings) -> None:
    """Print the verdicts, and write them and their criteria into the pages of the results."""
    findings = evaluate(CLAIMS, committed(settings.results))
    for name, table in {"README.md": verdicts(findings), "details.md": criteria(findings)}.items():
        page = insert((settings.results / name).read_text(encoding="utf-8"), table)
        RunFolder(settings.results).write_text(name, page)
    console = Console(highlight=False)
    print_findings(findings, console)
    console.print(f"The page is {settings.results / 'README.md'}", soft_wrap=True)


def committed(results: Path) -> Tables:
    """Return the tables in a folder of results."""
    return Tables({name: results / path for name, path in COMMITTED.items()})


def links(claim: Claim) -> str:
    """Return links from the page of the results to the tables of a claim."""
    paths = (COMMITTED[name] for name in claim.tables)
    return ", ".join(f"[{Path(path).parent}]({path})" for path in paths)


def verdicts(findings: Sequence[Finding]) -> str:
    """Return the table of a line per claim: where it is from, the claim, a number, a word and a link."""
    header = ["source", "claim", "measured", "verdict", "data"]
    lines = [
        [claim.where, claim.statement, number, emphasised(verdict), links(claim)]
        for claim, number, verdict in findings
    ]
    return f"{summary(findings)} {CONVENTION}\n\n{markdown(header, lines)}"


def emphasised(verdict: Verdict) -> str:
    """Return a verdict in Markdown, in bold type if it contradicts the claim."""
    return f"**{verdict}**" if verdict == "differs" else verdict


def criteria(findings: Sequence[Finding]) -> str:
    """Return the table of the criteria by which claims are decided."""
    lines = [[claim.where, claim.statement, claim.criterion] for claim, _, _ in findings]
    return markdown(["source", "claim", "criterion"], lines)


def insert(page: str, table: str) -> str:
    """Return a page of Markdown with a table between the two markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(
            f"the page has no markers; expected the lines {BEGIN!r} and {END!r}, between which the table "
            "of claims is written. Add them to the page."
        )
    return f"{before}{begin}\n{table}{end}{after}"
