"""Verdicts on claims in the terminal, and what a report and the page of the results say about all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from reproduction.claims.claim import Finding

STYLES = {"agrees": "green", "differs": "red"}
CONVENTION = (
    "“It” is the unordered set estimator with its built-in baseline, unless the row names another one. A "
    "positive difference supports the claim. If the claim is that two estimators are equal, a positive "
    "difference means that the unordered set estimator is the better one. Brackets are 95 % intervals."
)


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print the claims that were measured with criterion, number and verdict, and count the others."""
    table = Table("claim and criterion", title="Claims and verdicts", caption=CONVENTION)
    table.show_lines = True
    table.add_column("measured", width=22)
    table.add_column("verdict", width=11)
    measured = [finding for finding in findings if finding.number != "–"]
    for claim, number, verdict in measured:
        text = f"[bold]{claim.where}.[/] {claim.statement}\n[dim]{claim.criterion}[/]"
        table.add_row(text, number, f"[{STYLES.get(verdict, 'default')}]{verdict}[/]")
    console.print(table)
    if others := len(findings) - len(measured):
        console.print(
            f"{others} other claims need longer runs than this one; results/README.md has their verdicts."
        )
    console.print(summary(findings))


def summary(findings: Sequence[Finding]) -> str:
    """Count the verdicts in a line."""
    counts = Counter(finding.verdict for finding in findings)
    listed = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    return f"{len(findings)} claims ({listed})."
