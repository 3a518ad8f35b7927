"""The tables of the experiment with pronunciations, in Markdown."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import INTERVAL, over_seeds, with_error
from reproduction.harness.tables import markdown
from reproduction.pronunciation.settings import PronunciationSettings

METHODS = {
    "rloo mean": "RLOO",
    "unordered_set mean": "unordered set",
    "rloo best_of": "best of m, independent",
    "unordered_set best_of": "best of m, distinct",
    "rloo log_success": "log of success, independent",
    "unordered_set log_success": "log of success, distinct",
}
"""What a run is trained with, by its estimator and objective, in the order of tables."""

COMPARED = "rloo mean"  # the method that the others are compared with
METRICS = {
    "greedy": "greedy",
    "greedy_right_before": "greedy, right before",
    "greedy_wrong_before": "greedy, wrong before",
    "sampled": "one draw",
    "pass_at_8": "one of 8 draws",
}
"""Metrics of held-out words, and their titles."""


def gains(variance: pd.DataFrame) -> pd.DataFrame:
    """Return RLOO's variance ÷ that of unordered set, its error, and RLOO's duplicates, by k.

    A k for which only one of them was measured is left out.
    """
    by = variance.set_index(["k", "estimator"]).unstack()
    value, error = by["variance"], by["variance_error"]
    gain = value["rloo"] / value["unordered_set"]
    relative = (error / value).pow(2).sum(axis=1) ** 0.5
    share = by["duplicates"]["rloo"]
    columns = {"duplicates": share, "gain": gain, "gain_error": gain * relative}
    return pd.DataFrame(columns).dropna()


def samples_table(groups: pd.DataFrame, variance: pd.DataFrame) -> str:
    """Return a table by k: duplicates, groups without signal, and variances of gradients."""
    gain, by_k = gains(variance), groups.set_index("k").sort_index()
    lines = []
    for k, row in by_k.iterrows():
        names = ("duplicates", "no_signal_independent", "no_signal_distinct")
        shares = [with_error(row[name], row[f"{name}_error"]) for name in names]
        ratio = "–"
        if k in gain.index:
            ratio = with_error(gain["gain"][k], gain["gain_error"][k])
        lines.append([k, *shares, ratio])
    header = ["samples k", "duplicates among independent (%)", "no signal, independent (%)"]
    header += ["no signal, distinct (%)", "variance of RLOO ÷ unordered set"]
    return markdown(header, lines)


def pass_table(passes: pd.DataFrame) -> str:
    """Return the table of pass@m: what is exact, the two estimates, and their standard errors."""
    by_m = passes.set_index(["m", "samples"]).sort_index()
    lines = []
    for m in sorted(passes["m"].unique()):
        one, other = by_m.loc[(m, "rloo")], by_m.loc[(m, "unordered_set")]
        means = [with_error(100 * r["mean"], 100 * r["mean_error"]) for r in (one, other)]
        spreads = [f"{100 * r['spread']:.3f}" for r in (one, other)]
        reported = f"{100 * other['reported']:.3f}" if other["reported"] > 0 else "–"
        ratio = f"{(one['spread'] / other['spread']) ** 2:.1f}"
        words = f"{100 * one['words_error']:.2f}"
        lines.append([m, f"{100 * one['exact']:.2f}", *means, *spreads, reported, ratio, words])
    header = ["m", "exact pass@m (%)", "independent (Chen et al.)", "distinct"]
    header += ["standard error, independent", "standard error, distinct"]
    header += ["reported by distinct", "variance, independent ÷ distinct"]
    return markdown([*header, "standard error, words"], lines)


def read_points(run: Path) -> pd.DataFrame:
    """Read the validations of a run: its method, seed, steps, and the metrics of held-out words."""
    settings = read_settings(PronunciationSettings, run)
    about = {"method": f"{settings.estimator} {settings.objective}", "seed": settings.seed}
    records = list(read_records(run, "valid"))
    if not records:
        raise UserError(f"{run} has no validation; expected one. Wait, or leave it out.")
    return pd.DataFrame(
        [about | {"step": r["step"]} | {name: r[name] for name in METRICS} for r in records]
    )


def at_the_end(points: pd.DataFrame) -> tuple[int, pd.DataFrame]:
    """Return the steps of the last validation that all runs have, and it by method and seed."""
    last = int(points.groupby(["method", "seed"])["step"].max().min())
    if last == 0:
        raise UserError(
            "a run has no validation after a step; expected one. Wait, or leave it out."
        )
    return last, points[points["step"] == last].set_index(["method", "seed"])


def training_table(points: pd.DataFrame) -> str:
    """Return, for each method, the metrics of the last validation that all runs have, in percent.

    Below each mean over seeds are the mean differences to the network before, and to RLOO with the same
    seeds, with their intervals.
    """
    last, end = at_the_end(points)
    start = 100 * points[points["step"] == 0].groupby("seed").first()[list(METRICS)].mean()
    names = [name for name in METHODS if name in end.index.levels[0]]
    lines: list[list[object]] = [["before", "", *(f"{start[m]:.2f}" for m in METRICS)]]
    for name in names:
        mine = 100 * end.loc[name][list(METRICS)]
        lines.append([METHODS[name], len(mine), *(f"{mine[m].mean():.2f}" for m in METRICS)])
        lines.append(["minus before", *_differences(mine - start)])
        if name != COMPARED and COMPARED in names:
            apart = (mine - 100 * end.loc[COMPARED][list(METRICS)]).dropna()
            lines.append([f"minus {METHODS[COMPARED]}", *_differences(apart)])
    titles = [f"{title} (%)" for title in METRICS.values()]
    table = markdown([f"after {last} steps", "seeds", *titles], lines)
    return table + f"\nDifferences are means over seeds, with {INTERVAL}s.\n"


def _differences(apart: pd.DataFrame) -> list[object]:
    """Format the number of seeds, and the mean of each metric over them with its interval."""
    return [len(apart), *(over_seeds(apart[m].tolist()).text() for m in METRICS)]
