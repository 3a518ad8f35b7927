"""Verdicts on claims: short runs, missing tables, and the page of the results."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("scipy")
pytest.importorskip("rich")

from rich.console import Console

from reproduction.claims.claim import Claim, Tables, evaluate
from reproduction.claims.command import (
    BEGIN,
    COMMITTED,
    END,
    ClaimsSettings,
    claims,
    committed,
    criteria,
    insert,
    verdicts,
)
from reproduction.claims.listed import CLAIMS
from reproduction.claims.page import print_findings
from reproduction.harness.errors import UserError

RESULTS = Path(__file__).parents[3] / "results"


def claim(decision: str, table: str = "t") -> Claim:
    return Claim("Figure 9", "It is so.", "It is above 0.", (table,), lambda rows: ("7", decision))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": [1]}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("short", [True, False])
def test_a_short_run_says_that_it_is_too_short(short: bool, table: Path) -> None:
    listed = [claim(decision) for decision in ("agrees", "differs", "undecided")]
    findings = evaluate([*listed, claim("agrees", "longer")], Tables({"t": table}, short))
    hidden = "not shown in a run this short"
    assert [finding.verdict for finding in findings] == [
        "agrees",
        "differs",
        hidden if short else "undecided",
        hidden if short else "not measured",
    ]


def test_a_table_that_a_failed_step_did_not_write_is_named(tmp_path: Path) -> None:
    (finding,) = evaluate([claim("agrees")], Tables({"t": tmp_path / "none.csv"}, short=True))
    assert finding.verdict == "not measured"
    assert "none.csv" in finding.number


def test_an_estimator_that_a_table_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tsp.csv"
    row = {"estimator": "rloo", "seed": 0, "steps": 8, "instances": 8, "gap": 1.0}
    pd.DataFrame([row]).to_csv(path, index=False)
    listed = [claim for claim in CLAIMS if claim.tables == ("tsp",)]
    findings = evaluate(listed, Tables({"tsp": path}))
    assert {finding.verdict for finding in findings} == {"not measured"}
    assert findings[0].number == "the table has no unordered_set"


def test_the_terminal_shows_criterion_number_and_verdict(table: Path) -> None:
    text = StringIO()
    findings = evaluate([claim("agrees"), claim("agrees", "longer")], Tables({"t": table}, True))
    print_findings(findings, Console(file=text, width=80))
    printed = text.getvalue()
    assert all(part in printed for part in ("It is so.", "It is above 0.", " 7 ", "agrees"))
    assert "1 other claims need longer runs" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_page_without_markers_is_an_error() -> None:
    with pytest.raises(UserError, match="Add them"):
        insert(f"a {BEGIN} b", "")


def test_the_pages_of_the_results_are_those_of_the_list_and_the_tables() -> None:
    findings = evaluate(CLAIMS, committed(RESULTS))
    assert {finding.verdict for finding in findings} <= {"agrees", "differs", "undecided"}
    for name, table in (("README.md", verdicts(findings)), ("details.md", criteria(findings))):
        page = (RESULTS / name).read_text(encoding="utf-8")
        assert page == insert(page, table), f"run python -m reproduction claims, and commit {name}"


def test_every_committed_table_is_used() -> None:
    used = {name for claim in CLAIMS for name in claim.tables}
    assert used == set(COMMITTED)


def test_the_command_writes_the_pages(tmp_path: Path) -> None:
    for name in ("README.md", "details.md"):
        (tmp_path / name).write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    claims(ClaimsSettings(tmp_path))
    page, details = ((tmp_path / name).read_text() for name in ("README.md", "details.md"))
    for text in (page, details):
        assert "stale" not in text
        assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert page.count("not measured |") == len(CLAIMS)
    assert all(claim.criterion in details and claim.criterion not in page for claim in CLAIMS)
