"""The pages of ``results/`` have the numbers of the tables that commands wrote beside them."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

RESULTS = Path(__file__).parents[1] / "results"
PAGES = ("README.md", "details.md")
TABLES = sorted(path for path in RESULTS.rglob("*.md") if path.name not in (*PAGES, "answer.md"))


def page_of(table: Path) -> str:
    """The text of the nearest page above a table and of its details, without emphasis."""
    folder = next(p for p in table.parents if (p / "README.md").exists())
    pages = [folder / name for name in PAGES if (folder / name).exists()]
    return "".join(page.read_text(encoding="utf-8") for page in pages).replace("**", "")


def numbers(line: str) -> str:
    """The cells of a row from its first number on; the labels before it may be other words."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    first = next((i for i, cell in enumerate(cells) if re.match(r"[-−–]?[\d–]", cell)), len(cells))
    return " | ".join(cells[first:]).rstrip("| ")


@pytest.mark.parametrize("table", TABLES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_page_has_the_numbers_of_its_tables(table: Path) -> None:
    page = page_of(table) + documentation_of(table)
    rows = [numbers(line) for line in table.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row and not set(row) <= set("-| ")]
    assert rows
    missing = [row for row in rows if row not in page]
    assert not missing, f"the page of {table} lacks these rows: {missing}"


def documentation_of(table: Path) -> str:
    """The page of the documentation with the name of the experiment, with the table if it includes it."""
    page = RESULTS.parent / "docs" / f"{table.relative_to(RESULTS).parts[0]}.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    included = f'--8<-- "{table.relative_to(RESULTS.parent)}"'
    return text.replace(included, table.read_text(encoding="utf-8"))


def rows_of(path: str) -> list[dict[str, str]]:
    with (RESULTS / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text_of(path: str) -> str:
    return " ".join((RESULTS.parent / path).read_text(encoding="utf-8").split())


def test_the_lead_in_the_large_domain_of_the_vae() -> None:
    by_epoch: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for row in rows_of("vae/curves.csv"):
        if row["dims"] == "20" and row["split"] == "valid":
            leads = row["estimator"] in ("unordered_set", "rloo")
            by_epoch[row["epoch"]].append((leads, float(row["negative_elbo"])))
    lead = [
        min(x for leads, x in values if not leads) - max(x for leads, x in values if leads)
        for values in by_epoch.values()
    ]
    assert f"by at least {min(lead):.1f} nats" in text_of("results/vae/README.md")


def test_what_distinct_samples_save_for_the_best_of_m() -> None:
    table = {
        (row["estimator"], int(row["k"])): row
        for row in rows_of("best_of/exact/variances.csv")
        if row["entropy"] == "high" and row["estimator"] in ("distinct", "fewer", "centred")
    }
    for name, words in (("value", "of the value"), ("gradient", "of that of the gradient")):
        saved = []
        for k in (3, 4, 5):
            others = [float(row[f"{name}_variance"]) for (e, n), row in table.items() if n == k]
            saved.append(100 - 100 * min(others) / sorted(others)[1])
        share = f"{min(saved):.0f} to {max(saved):.0f} %"
        page = text_of("docs/best_of.md")
        assert f"{share} of the variance {words}" in page or f"{share} {words}" in page


def test_what_tangents_gain_at_equal_evaluations_and_at_equal_time() -> None:
    rows = (line.split(" | ") for line in text_of_lines("results/vae/20-control/control.md"))
    table = {row[0].lstrip("| "): row[1:] for row in rows}
    ours, rloo = table["Unordered set, tangents"], table["RLOO"]
    before, after = (float(row[0].split(" ± ")[0]) for row in (rloo, ours))
    gain, time = 1 - math.exp(after - before), float(ours[2])
    page = text_of("docs/control_variates.md")
    assert f"its variance was {gain:.0%}".replace("%", " %") in page
    assert f"{time} times as long as RLOO, so at equal time" in page
    assert f"the gain was {1 - (1 - gain) * time:.0%}".replace("%", " %") in page


def test_duplicates_in_the_first_steps_of_the_sorting_task() -> None:
    by_step: dict[str, list[float]] = defaultdict(list)
    for row in rows_of("lm/curves.csv"):
        first = row["metric"] == "duplicates" and int(row["step"]) <= 100
        if first and row["estimator"] == "rloo":
            by_step[row["step"]].append(100 * float(row["value"]))
    mean, single = max(map(fmean, by_step.values())), max(map(max, by_step.values()))
    page = text_of("results/lm/details.md")
    assert f"mean over seeds | {mean:.1f} % |" in page and f"single run | {single:.1f} % |" in page


def test_every_result_says_whether_sampling_in_float32_could_have_touched_it() -> None:
    page = (RESULTS / "details.md").read_text(encoding="utf-8")
    table = page.partition("## Sampling in float32")[2]
    named = set(re.findall(r"`([\w/.-]+)`", table))
    folders = {table.parent.relative_to(RESULTS) for table in RESULTS.rglob("*.csv")}
    for folder in folders:
        above = {str(path) for path in (folder, *folder.parents)}
        inside = {name for name in named if name.startswith(f"{folder}/")}
        assert named & above or inside, f"results/details.md says nothing about {folder}"


def test_validations_at_which_the_greedy_rollout_is_behind() -> None:
    gaps = {
        (row["estimator"], row["seed"], row["steps"]): float(row["gap"])
        for row in rows_of("tsp/tsp20/gaps.csv")
        if int(row["steps"]) > 0
    }
    rollout = {key[1:]: gap for key, gap in gaps.items() if key[0] == "reinforce_rollout"}
    behind = sum(gap > gaps["unordered_set", *key] for key, gap in rollout.items())
    (line,) = (
        line
        for line in text_of_lines("results/tsp/validations.md")
        if line.startswith("| REINFORCE, greedy rollout |")
    )
    assert line.split(" | ")[4] == f"{behind} of {len(rollout)}"


def test_gaps_at_equal_numbers_of_instances() -> None:
    lines = text_of_lines("results/tsp/tsp20/instances.md")
    for name, label in (("unordered_set", "Unordered set"), ("reinforce_rollout", "REINFORCE, gr")):
        found = [row for row in rows_of("tsp/tsp20/gaps.csv") if row["estimator"] == name]
        at = [f"{float(row['gap']):.2f}" for row in found if row["instances"] == "640000"]
        (line,) = (line for line in lines if line.startswith(f"| {label}"))
        assert line.endswith(f"| {' | '.join(at)} |")


def text_of_lines(path: str) -> list[str]:
    return (RESULTS.parent / path).read_text(encoding="utf-8").splitlines()
