"""The numbers of the pages on the travelling salesman."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pandas as pd

from reproduction.claims.criteria.tours import paired_gaps
from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import OURS, behind, minus_ours, over_seeds, with_error
from reproduction.harness.tables import committed_table, markdown, read_table
from reproduction.tsp.best_of_k import answer as best_of_k_answer
from reproduction.tsp.figures import RELEASED
from reproduction.tsp.measurement_settings import TSPVariance
from reproduction.tsp.paired import paired_table, read_final_gaps
from reproduction.tsp.ranking import (
    COMMAND,
    Sampled,
    in_last_quarter,
    ranking,
    runs_of,
    sampled_table,
)
from reproduction.tsp.settings import SINGLE
from reproduction.tsp.variance_tables import variance_tables

USUAL, BIASED = "rloo", "risk"
MEAN = "mean of these"  # of the validations of a run
REPEATED = 100  # steps, before which no tours repeat
CONTINUED = ("1e-4", "1e-5")  # learning rates of the runs that continue from the authors' policy
PARTS = {
    "start": "20 nodes, from a trained model",
    "tsp20": "20 nodes, from the beginning",
    "tsp10": "10 nodes, from the beginning",
}
"""Folders of runs of all estimators, and their titles."""
TRAINED = {
    "start": "our first model",
    "second-start": "our second model",
    "continued-1e-4": f"{RELEASED}, learning rate 1e-4",
    "continued-1e-5": f"{RELEASED}, learning rate 1e-5",
}
"""Folders of runs that continue from a trained model, and what they start from."""
FOLLOWED = (USUAL, "reinforce_rollout", "normalized_importance_weighted", BIASED)


def measured(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of variances and of policies: of our training, and the authors' policy after it."""
    parts = [folder / part for part in ("variance", "released")]
    tables = [
        pd.concat(
            [committed_table(part / name) for part in parts if (part / name).is_file()],
            ignore_index=True,
        )
        for name in ("variance.csv", "policies.csv")
    ]
    return tables[0], tables[1].sort_values("step")


def title(folder: Path, step: int) -> str:
    """Return what the policy of a step is called."""
    ours = committed_table(folder / "variance" / "policies.csv")["step"].max()
    return RELEASED if step > ours else f"step {step}"


def answer(folder: Path) -> str:
    """Return what distinct tours of a confident policy are worth, to search and to train."""
    few = best_of_k_answer(committed_table(folder / "best_of_k" / "20" / "best_of_k.csv")).strip()
    return (
        f"{few} When this policy is trained further, RLOO, which draws independent tours, ends with a larger "
        f"gap than the unordered set estimator, which draws distinct ones: by {_continued(folder)}.\n"
    )


def _continued(folder: Path) -> str:
    """Return how far RLOO is behind after training from the authors' policy, for each learning rate."""
    parts = []
    for rate in CONTINUED:
        models = committed_table(folder / f"continued-{rate}" / "paired.csv")
        parts.append(
            f"{paired_gaps(models, USUAL).text(3)} percentage points at the learning rate {rate}"
        )
    return " and by ".join(parts)


def paired(folder: Path) -> str:
    """Return the comparison of final models, as the command tsp-paired prints it."""
    found = read_final_gaps(folder)
    return paired_table(found.runs, found.start)


def sampled(folder: Path) -> str:
    """Return the tours that were sampled in the last quarter, as the command tsp-figures prints them."""
    return sampled_table(read_table(folder / "sampled.csv", Sampled, COMMAND))


def checkpoints(folder: Path) -> str:
    """Return the differences from the unordered set estimator at every validation, and in their mean."""
    runs, _ = _validated(folder)
    lines = [
        [appearance(name).label, *(_apart(values, name, 4) for values in runs.values())]
        for name in in_order(runs[MEAN]["estimator"])
        if name != OURS
    ]
    return markdown([f"gap minus that of {appearance(OURS).label}", *runs], lines)


def since_start(folder: Path) -> str:
    """Return the differences from the model that all runs start from, at every validation, over the seeds."""
    runs, start = _validated(folder)
    lines = []
    for name in in_order(runs[MEAN]["estimator"]):
        gained = (v[v["estimator"] == name]["value"] - start for v in runs.values())
        cells = [
            f"{over_seeds(list(g)).text(4)}; {(g > 0).sum()} of {len(g)} above" for g in gained
        ]
        lines.append([appearance(name).label, *cells])
    return markdown(["gap minus that of the start", *runs], lines)


def _validated(folder: Path) -> tuple[dict[str, pd.DataFrame], float]:
    """Return the gaps of the runs at every validation and in their mean, and the gap of the start."""
    gaps = committed_table(folder / "gaps.csv").rename(columns={"gap": "value"})
    trained = gaps[gaps["steps"] > 0]
    runs = {f"step {step}": part for step, part in trained.groupby("steps")}
    runs[MEAN] = trained.groupby(["estimator", "seed"], as_index=False)["value"].mean()
    return runs, float(gaps[gaps["steps"] == 0]["value"].mean())


def variances(folder: Path) -> str:
    """Return the tables of variance, bias and policies."""
    variance, policies = measured(folder)
    names = {step: title(folder, step) for step in policies["step"]}
    settings = read_settings(TSPVariance, folder / "variance")
    return variance_tables(settings, variance, policies, names).replace("## ", "### ")


def risk(folder: Path) -> str:
    """Return the mean squared error of one gradient of RISK and of the unordered set estimator.

    It is the variance and the squared bias, over the squared norm of the true gradient.
    """
    variance, policies = measured(folder)
    table, lines = variance.set_index(["step", "estimator"]), []
    for row in policies.itertuples():
        if (row.step, BIASED) not in table.index:
            continue
        ours, biased = table.loc[(row.step, OURS)], table.loc[(row.step, BIASED)]
        parts = (ours["variance"], biased["variance"], biased["squared_bias"])
        shares = [part / row.squared_gradient for part in (*parts, parts[1] + parts[2])]
        share = f"{100 * row.duplicates:.0f} %"
        lines.append([title(folder, row.step), share, *(f"{share:.2g}" for share in shares)])
    header = ["policy", "duplicates", f"{appearance(OURS).label}: variance"]
    parts_of = (f"{appearance(BIASED).label}: {name}" for name in ("variance", "squared bias"))
    return markdown([*header, *parts_of, f"{appearance(BIASED).label}: both"], lines)


def differences(folder: Path) -> str:
    """Return the gap of each estimator minus that of the unordered set estimator, and in how many seeds."""
    found = {part: runs_of(ranking(committed_table(folder / part / "gaps.csv"))) for part in PARTS}
    lines = []
    for name in in_order(found["tsp20"]["estimator"]):
        if name != OURS:
            lines.append([appearance(name).label, *(_apart(found[part], name) for part in PARTS)])
    return markdown([f"gap minus that of {appearance(OURS).label}", *PARTS.values()], lines)


def _apart(runs: pd.DataFrame, name: str, digits: int = 2) -> str:
    return f"{minus_ours(runs, name, digits)}; behind in {behind(runs, name)}"


def pairs(folder: Path) -> str:
    """Return in how many pairs of runs with the same start and seed others are behind."""
    lines = []
    for part, where in TRAINED.items():
        if part.startswith("continued"):
            models = committed_table(folder / part / "paired.csv")
            runs, by = models.assign(value=models["gap"]), "final models"
        else:
            runs, by = runs_of(ranking(committed_table(folder / part / "gaps.csv"))), "last quarter"
        measured = set(runs["estimator"])
        cells = [behind(runs, name) if name in measured else "–" for name in FOLLOWED]
        lines.append([where, by, *cells])
    header = [f"{appearance(name).label} behind" for name in FOLLOWED]
    return markdown(["start", "compared by", *header], lines)


def instances(folder: Path) -> str:
    """Return the gap at equal numbers of instances, the most that the estimators of one tour share."""
    gaps = committed_table(folder / "gaps.csv")
    last = gaps.groupby(["estimator", "seed"])["instances"].max().min()
    rows = gaps[gaps["instances"] == last]
    seeds = sorted(rows["seed"].unique())
    table = rows.pivot(index="estimator", columns="seed", values="gap").assign(
        mean=lambda found: found.mean(axis=1)
    )
    steps = rows.groupby("estimator")["steps"].first()
    lines = []
    for name in table.sort_values("mean").index:
        cells = ["–" if pd.isna(gap) else f"{gap:.2f}" for gap in table.loc[name, seeds]]
        tours = "one tour" if name in SINGLE else "four tours"
        lines.append([appearance(name).label, tours, steps[name], *cells])
    number = f"{last:,}".replace(",", " ")
    header = ["estimator", "of each instance", "steps", *(f"seed {seed}" for seed in seeds)]
    return f"Gap (%) after {number} instances:\n\n" + markdown(header, lines)


def validations(folder: Path) -> str:
    """Return how the gaps change from one validation to the next, and who is behind at how many of them."""
    found = {part: committed_table(folder / part / "gaps.csv") for part in PARTS}
    lines = []
    for name in in_order(found["tsp20"]["estimator"]):
        cells = [
            cell for gaps in found.values() for cell in (_change(gaps, name), _behind(gaps, name))
        ]
        lines.append([appearance(name).label, *cells])
    header = [
        text for title in PARTS.values() for text in (f"{title}: change", "validations behind")
    ]
    return markdown(["estimator", *header], lines)


def _change(gaps: pd.DataFrame, name: str) -> str:
    """Format the mean change between validations of the last quarter, as a range over the runs."""
    common = gaps.groupby(["estimator", "seed"])["steps"].max().min()
    mine = gaps[(gaps["estimator"] == name) & (in_last_quarter(gaps["steps"], common))]
    changes = [
        fmean(abs(b - a) for a, b in pairwise(run.sort_values("steps")["gap"]))
        for _, run in mine.groupby("seed")
    ]
    ends = dict.fromkeys(f"{end:.2f}" for end in (min(changes), max(changes)))
    return " to ".join(ends)


def _behind(gaps: pd.DataFrame, name: str) -> str:
    """Count the validations of all runs at which one is behind the unordered set estimator of its seed."""
    if name == OURS:
        return "–"
    common = gaps.groupby(["estimator", "seed"])["steps"].max().min()
    trained = gaps[gaps["steps"].between(1, common)].set_index(["seed", "steps"])
    mine, ours = (trained[trained["estimator"] == e]["gap"] for e in (name, OURS))
    apart = (mine - ours).dropna()
    return f"{(apart > 0).sum()} of {len(apart)}"


def when_it_pays(folder: Path) -> str:
    """Return the table of the page "When does it pay?": the gain against the training steps.

    The last row is the policy that the authors trained, if it was measured.
    """
    tours = folder.parent / "tsp"
    rows, policies = measured(tours)
    rows = rows[(rows["estimator"] == "unordered_set") & (rows["step"] >= REPEATED)]
    repeated = policies.set_index("step")["duplicates"]
    lines = []
    for row in rows.sort_values("step").itertuples():
        number = f"{row.step:,.0f}".replace(",", " ")
        whose = f", {RELEASED}" if title(tours, row.step) == RELEASED else ""
        gain = with_error(row.gain, row.gain_error)
        lines.append([f"{number}{whose}", f"{100 * repeated[row.step]:.1f} %", gain])
    return markdown(["training steps", "duplicates", "variance of RLOO ÷ unordered set"], lines)
