"""The sections on the VAE: Table 1, the gradient variance, and Figure 2, the training curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from scipy.stats import rankdata, spearmanr

from reproduction.harness.appearance import appearance
from reproduction.reproduce.report import html
from reproduction.vae.published import NEGATIVE_ELBO, PAPER

CORRECTED = ("arsm", "relax")
"""Estimators whose published variances come from incorrect code, which the comparison leaves out."""

PARTS = ("encoder", "decoder", "both")

Curve = tuple[str, int]
"""An estimator and its k."""

VARIANCE_TEXT = (
    "The table shows the logarithm of the total variance of the gradient of encoder and decoder, for the "
    "first 100 training images and a model that was trained by RLOO with k = 4. "
    "Lower is better. The paper's values are for MNIST after 1000 epochs. The values themselves can only be "
    "compared if the data and the length of training are the same; the order of the estimators always "
    "can."
)
CURVES_TEXT = (
    "The chart shows the −ELBO during training, smoothed over five points. Lower is better. The paper's "
    "values in the table are for a domain of 10²⁰ outcomes on MNIST after 1000 epochs."
)


def table1(folder: Path, data: str, dims: int) -> html.Section:
    """Return the section on the gradient variance, and its findings."""
    rows = html.read_csv(folder / "variance.csv")
    last = max(int(row["epoch"]) for row in rows)
    final = [row for row in rows if int(row["epoch"]) == last]
    content = html.section(
        f"table1-{data}-{dims}",
        f"Table 1: gradient log-variance, {html.power(dims)} outcomes on {data}",
        html.paragraph(VARIANCE_TEXT),
        comparison_table(final, dims),
        html.chart(
            f"variance-{data}-{dims}",
            [bars(final, part) for part in PARTS],
            x="log-variance",
            views="Gradient of",
            caption="All applicable estimators with k = 4, or with k = 1 if this already takes more "
            "than four evaluations.",
            alternative="Bar chart: log-variance of each estimator. The values are in the table below.",
        ),
        html.folded("All values, at equal k and at equal evaluations", full_table(final)),
        html.chart(
            f"variance-epochs-{data}-{dims}",
            [epochs(rows, name) for name in PAPER],
            x="epoch",
            y="log-variance of the encoder's gradient",
            caption="Log-variance during training, as in the paper's Figure 4, with two standard errors.",
            alternative="Line chart: log-variance of the estimators of Table 1 at several epochs.",
        ),
    )
    return content, variance_findings(final, f"Table 1, {html.power(dims)}, {data}", dims)


def of_part(rows: html.Rows, part: str) -> dict[Curve, Mapping[str, str]]:
    """Return the rows on the gradient of the encoder, the decoder or both, which the paper reports."""
    return {(r["estimator"], int(r["k"])): r for r in rows if r["part"] == part}


def pairs(rows: html.Rows, dims: int) -> dict[str, tuple[float, float]]:
    """Return the paper's value and ours for each estimator of Table 1."""
    ours = of_part(rows, "both")
    return {
        name: (entry.log_variance[dims], float(ours[name, entry.k]["log_variance"]))
        for name, entry in PAPER.items()
        if (name, entry.k) in ours and dims in entry.log_variance
    }


def comparison_table(rows: html.Rows, dims: int) -> str:
    """Return Table 1 with the paper's values, ours, and the ranks of both."""
    both, ours = pairs(rows, dims), of_part(rows, "both")
    paper_ranks, our_ranks = (rankdata(values) for values in zip(*both.values(), strict=True))
    lines = []
    for (name, (paper, here)), *order in zip(both.items(), paper_ranks, our_ranks, strict=True):
        row = ours[name, PAPER[name].k]
        first = [appearance(name).label, row["k"], row["evaluations"]]
        rank = " → ".join(f"{place:g}" for place in order)
        lines.append([*first, paper, with_error(row), here - paper, rank])
    return html.table(
        "The values of Table 1 and ours; rank 1 is the lowest variance",
        ["estimator", "k", "evaluations", "paper", "here", "difference", "rank: paper → here"],
        lines,
    )


def full_table(rows: html.Rows) -> str:
    """Return the variances of all estimators, for every k that was measured."""
    by_part = {(r["estimator"], r["k"], r["part"]): with_error(r) for r in rows}
    lines = [
        [
            appearance(row["estimator"]).label,
            row["k"],
            row["evaluations"],
            *(by_part[row["estimator"], row["k"], part] for part in PARTS),
        ]
        for row in sorted(of_part(rows, "encoder").values(), key=lambda r: float(r["log_variance"]))
    ]
    head = ["estimator", "k", "evaluations", *PARTS]
    return html.table("Log-variance of all estimators, the lowest first", head, lines)


def with_error(row: Mapping[str, str]) -> str:
    """Format a log-variance with its standard error."""
    return f"{float(row['log_variance']):.2f} ± {float(row['standard_error']):.2f}"


def bars(rows: html.Rows, part: str) -> html.Trace:
    """Return a bar per estimator at its largest k up to 4, the lowest variance at the top."""
    mine = [row for row in rows if row["part"] == part and int(row["k"]) <= 4]
    largest_k = {r["estimator"]: r for r in sorted(mine, key=lambda row: int(row["k"]))}
    ordered = sorted(largest_k.values(), key=lambda row: -float(row["log_variance"]))
    return html.Trace(
        "log-variance",
        html.ACCENT,
        [appearance(row["estimator"]).label for row in ordered],
        [height(row) for row in ordered],
        view=part,
        kind="bar",
        text=[f"k = {row['k']}, {row['evaluations']} evaluations" for row in ordered],
        error=[2.0 * float(row["standard_error"]) for row in ordered],
    )


def height(row: Mapping[str, str]) -> float | None:
    """Return a log-variance, or None if the variance is zero."""
    value = float(row["log_variance"])
    return value if math.isfinite(value) else None


def epochs(rows: html.Rows, name: str) -> html.Trace:
    """Return the variance of an estimator of Table 1 during training."""
    entry = PAPER[name]
    wanted = (name, str(entry.k), "encoder")
    mine = [row for row in rows if (row["estimator"], row["k"], row["part"]) == wanted]
    mine.sort(key=lambda row: int(row["epoch"]))
    look = appearance(name)
    return html.Trace(
        f"{look.label}, k = {entry.k}",
        look.colour,
        [int(row["epoch"]) for row in mine],
        [height(row) for row in mine],
        dash=html.DASHES[look.line],
        error=[2.0 * float(row["standard_error"]) for row in mine],
    )


def variance_findings(rows: html.Rows, where: str, dims: int) -> list[html.Finding]:
    """Compare the order of the estimators with the paper's, and find the lowest variance."""
    both = pairs(rows, dims)
    correct = {name: pair for name, pair in both.items() if name not in CORRECTED}
    rho_all = rank_correlation(*zip(*both.values(), strict=True))
    rho = rank_correlation(*zip(*correct.values(), strict=True))
    excess = both["unordered_set"][1] - min(here for _, here in correct.values())
    return [
        html.Finding(
            where,
            "Table 1 orders eight estimators by their variance.",
            f"The rank correlation with that order is {rho:.2f} without ARSM and RELAX, which the "
            f"paper's released code implements incorrectly, and {rho_all:.2f} with them.",
            rho > 0.5,
        ),
        html.Finding(
            where,
            "The unordered set estimator has the lowest variance, alone or together with others.",
            f"Its log-variance is {excess:.2f} above the lowest of the other estimators."
            if excess > 0
            else "It has the lowest log-variance of these estimators.",
            excess < 0.1,
        ),
    ]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    r"""Return Spearman's $\rho$, the correlation of the ranks; NaN for fewer than three pairs.

    >>> round(rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 15.0]), 12)
    0.5
    """
    return float(spearmanr(a, b).statistic) if len(a) > 2 else math.nan


def figure2(folder: Path, data: str, dims: int) -> html.Section:
    """Return the section on the training curves, and its finding."""
    rows = html.read_csv(folder / "curves.csv")
    best = lowest_elbo(rows)
    name = f"{html.power(dims)} outcomes on {data}"
    content = html.section(
        f"figure2-{data}-{dims}",
        f"Figure 2: training the VAE, {name}",
        html.paragraph(CURVES_TEXT),
        html.chart(
            f"figure2-{data}-{dims}",
            curve_traces(rows),
            x="epoch",
            y="−ELBO (nats)",
            log=True,
            views="Images for",
            caption="Training and validation curves. Click on an estimator in the legend to hide it.",
            alternative="Line chart: −ELBO of each estimator against epochs. The lowest values are in "
            "the table below.",
        ),
        elbo_table(best),
        *map(pictures, sorted(folder.glob("images-*unordered_set-4-seed0.png"))),
    )
    return content, [elbo_finding(best, f"Figure 2, {name}", (data, dims) == ("mnist", 20))]


def pictures(path: Path) -> str:
    """Return the images of a model."""
    run = path.stem.removeprefix("images-")
    return html.image(
        path,
        f"Rows of digits: images, reconstructions and samples of the model of {run}.",
        f"Images, reconstructions and samples of {run}",
    )


def lowest_elbo(rows: html.Rows) -> dict[Curve, dict[str, float]]:
    """Return the lowest smoothed −ELBO of each curve by split, the best curve first."""
    best: dict[Curve, dict[str, float]] = {}
    for row in rows:
        splits = best.setdefault((row["estimator"], int(row["k"])), {})
        value = float(row["smoothed"])
        splits[row["split"]] = min(value, splits.get(row["split"], math.inf))
    return dict(sorted(best.items(), key=lambda item: item[1]["train"]))


def elbo_table(best: Mapping[Curve, Mapping[str, float]]) -> str:
    """Return the lowest −ELBO of each curve beside the paper's."""
    lines = []
    for (name, k), splits in best.items():
        train, valid = NEGATIVE_ELBO.get((name, k), ("–", "–"))
        lines.append([appearance(name).label, k, splits["train"], splits["valid"], train, valid])
    return html.table(
        "Lowest smoothed −ELBO in training and validation, the best first",
        ["estimator", "k", "train, here", "valid, here", "train, paper", "valid, paper"],
        lines,
    )


def curve_traces(rows: html.Rows) -> list[html.Trace]:
    """Return a line for each run and split."""
    traces = []
    for split, view in (("train", "training"), ("valid", "validation")):
        for run in dict.fromkeys(row["run"] for row in rows):
            mine = [row for row in rows if row["run"] == run and row["split"] == split]
            name, k = mine[0]["estimator"], mine[0]["k"]
            look = appearance(name)
            traces.append(
                html.Trace(
                    f"{look.label}, k = {k}",
                    look.colour,
                    [float(row["epoch"]) for row in mine],
                    [float(row["smoothed"]) for row in mine],
                    view=view,
                    dash=html.DASHES[look.line],
                )
            )
    return traces


def elbo_finding(
    best: Mapping[Curve, Mapping[str, float]], where: str, comparable: bool
) -> html.Finding:
    """Compare the order of the estimators by their lowest training −ELBO with the paper's."""
    shared = [curve for curve in best if curve in NEGATIVE_ELBO]
    rho = rank_correlation(
        [NEGATIVE_ELBO[curve][0] for curve in shared], [best[curve]["train"] for curve in shared]
    )
    ours = f"The rank correlation with that order is {rho:.2f} over {len(shared)} estimators."
    if not comparable:
        ours += " The data and the length of training differ, so the values cannot be compared."
    return html.Finding(
        where,
        "Figure 2 orders the estimators by their lowest training −ELBO (10²⁰ outcomes on MNIST).",
        ours,
        rho > 0.5 if comparable else None,
    )
