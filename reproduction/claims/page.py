"""Verdicts on claims as a table: in the terminal, in Markdown, and as the rows of a page of HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from reproduction.claims.claim import Finding
from reproduction.harness.errors import UserError
from reproduction.harness.tables import markdown

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
STYLES = {"agrees": "green", "differs": "red"}
CONVENTION = (
    "Differences: the other estimator minus the unordered set estimator, with 95 % interval."
)


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the claims that were measured with criterion, number and verdict, and count the others."""
    table = Table(title="Claims and verdicts", caption=CONVENTION, show_lines=True)
    table.add_column("claim and criterion")
    table.add_column("measured", width=22)
    table.add_column("verdict", width=11)
    measured = [finding for finding in findings if finding.number != "–"]
    for claim, number, verdict in measured:
        text = f"[bold]{claim.where}.[/] {claim.statement}\n[dim]{claim.criterion}[/]"
        table.add_row(text, number, f"[{STYLES.get(verdict, 'default')}]{verdict}[/]")
    console.print(table)
    others = len(findings) - len(measured)
    if others:
        console.print(
            f"{others} other claims need longer runs than this one; results/README.md has their verdicts."
        )
    console.print(summary(findings))


def summary(findings: Sequence[Finding]) -> str:
    """Count the verdicts in a line."""
    counts = Counter(finding.verdict for finding in findings)
    listed = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    return f"{len(findings)} claims ({listed})."


def rows(findings: Sequence[Finding]) -> list[list[str]]:
    """Return the cells of the findings: source, claim, number, verdict and criterion."""
    return [
        [claim.where, claim.statement, number, verdict, claim.criterion]
        for claim, number, verdict in findings
    ]


HEADER = ["source", "claim", "measured", "verdict", "criterion"]


def insert(page: str, findings: Sequence[Finding], links: Sequence[str]) -> str:
    """Return a page of Markdown with the table of findings between the two markers.

    Args:
        page: text of the page.
        findings: findings of all claims.
        links: links to the tables behind each finding.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(
            f"the page has no markers; expected the lines {BEGIN!r} and {END!r}, between which the table "
            "of claims is written. Add them to the page."
        )
    lines = [[*row, link] for row, link in zip(rows(findings), links, strict=True)]
    table = markdown([*HEADER, "data"], lines)
    return f"{before}{begin}\n{summary(findings)} {CONVENTION}\n\n{table}{end}{after}"
