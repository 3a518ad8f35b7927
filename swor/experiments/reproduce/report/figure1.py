"""The part of the report on Figure 1, the Bernoulli toy problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from swor.experiments.bernoulli.curves import CURVES
from swor.experiments.reproduce.report.charts import Trace, colour, spec
from swor.experiments.reproduce.report.claims import Claim
from swor.experiments.reproduce.report.html import chart, image, paragraph, section, table
from swor.experiments.reproduce.report.numbers import finite, read_csv

Rows = Sequence[Mapping[str, str]]
DASHES = {"none": "dash", "sampled": "dot", "built-in": "solid"}
LABELS = {curve.name: curve.label for curve in CURVES}
ALTERNATIVE = (
    "Line chart: variance of the gradient of the Bernoulli toy problem against evaluations, a line "
    "for each estimator; the numbers are in the table below."
)


def figure1(folder: Path) -> tuple[str, list[Claim]]:
    """The section, and what it says about the paper's findings."""
    rows = read_csv(folder / "variances.csv")
    checks = read_csv(folder / "monte_carlo.csv")
    path = read_csv(folder / "trajectory.csv")
    claims = [*lowest(rows), agreement(checks), trajectory(path)]
    return section(
        "figure1",
        "Figure 1: gradient variance on the Bernoulli toy problem",
        paragraph(
            "Three bits, eight outcomes, one parameter η. The paper samples 1000 gradients for every "
            "point; here the variance is a finite sum over all samples, exact but for rounding. A "
            "sampled baseline costs twice the evaluations. Points whose variance is 0 (the whole "
            "domain was sampled) or infinite (importance weights up to k = 3) are not on the scale."
        ),
        chart(
            "figure1",
            spec(
                variance_traces(rows),
                x="evaluations of f, including baselines",
                y="variance of the gradient",
                log=True,
                views="Entropy",
            ),
            "Exact variance; click on an estimator to hide it, twice to see it alone.",
            ALTERNATIVE,
        ),
        values(rows),
        chart(
            "trajectory",
            spec(trajectory_traces(path), x="step", y="loss", log=False),
            "Gradient descent from η = −4 with k = 3 samples: mean loss of the runs.",
            "Line chart: the loss during optimisation with three gradients.",
        ),
        image(folder / "figure1.png", ALTERNATIVE, "Figure 1 as a picture to print"),
    ), claims


def variance_traces(rows: Rows) -> list[Trace]:
    """A line for each curve and η."""
    traces = []
    for eta in dict.fromkeys(row["eta"] for row in rows):
        for curve in CURVES:
            mine = [r for r in rows if r["eta"] == eta and r["estimator"] == curve.name]
            traces.append(
                Trace(
                    curve.label,
                    colour(curve.name),
                    [int(r["evaluations"]) for r in mine],
                    [finite(float(r["variance"])) for r in mine],
                    view=f"η = {float(eta):g}".replace("-", "−"),
                    dash=DASHES[curve.baseline],
                    text=[f"k = {r['k']}" for r in mine],
                )
            )
    return traces


def values(rows: Rows) -> str:
    """The numbers of the figure."""
    ks = sorted({int(row["k"]) for row in rows})
    by_key = {(r["eta"], r["estimator"], int(r["k"])): float(r["variance"]) for r in rows}
    lines = [
        [
            LABELS[name],
            f"{float(eta):g}".replace("-", "−"),
            *(f"{by_key[eta, name, k]:.3g}" for k in ks),
        ]
        for eta in dict.fromkeys(row["eta"] for row in rows)
        for name in LABELS
    ]
    numbers = table(
        "Exact variance by the number of samples k", ["estimator", "η", *map(str, ks)], lines
    )
    return f"<details><summary>The numbers</summary>{numbers}</details>"


def trajectory_traces(path: Rows) -> list[Trace]:
    """The mean loss of each way to estimate the gradient; every tenth step is enough to see it."""
    labels = {
        "exact": "Exact gradient",
        "unordered_set": "Unordered set",
        "reinforce": "REINFORCE, built-in baseline",
    }
    traces = []
    for place, (name, label) in enumerate(labels.items()):
        mine = [row for row in path if row["estimator"] == name][::10]
        traces.append(
            Trace(
                label,
                (12, 1, 2)[place],
                [int(row["step"]) for row in mine],
                [float(row["loss_mean"]) for row in mine],
                dash="dash" if name == "exact" else "solid",
            )
        )
    return traces


def lowest(rows: Rows) -> list[Claim]:
    """How far the unordered set estimator is from the lowest variance at equal evaluations."""
    claims = []
    for eta in dict.fromkeys(row["eta"] for row in rows):
        ratios = {k: _behind([r for r in rows if r["eta"] == eta], k) for k in range(2, 8)}
        worst = max(ratios, key=lambda k: ratios[k][0])
        first = sum(ratio < 1.0 + 1e-9 for ratio, _ in ratios.values())
        ratio, best = ratios[worst]
        claims.append(
            Claim(
                f"Figure 1, η = {float(eta):g}".replace("-", "−"),
                "the unordered set estimator has the lowest variance, or close to it, for all k",
                f"lowest for {first} of {len(ratios)} numbers of evaluations"
                + (f"; at most {ratio:.1f} times that of {LABELS[best]}" if ratio > 1.0 else ""),
                ratio < DECADE,
            )
        )
    return claims


DECADE = 10.0
"""Within it variances count as close: those of a panel differ by three to nine decades."""


def _behind(rows: Rows, evaluations: int) -> tuple[float, str]:
    """The variance of the unordered set estimator by the lowest, and which one that is."""
    variance = {
        r["estimator"]: float(r["variance"]) for r in rows if int(r["evaluations"]) == evaluations
    }
    best = min(variance, key=lambda name: variance[name])
    return variance["unordered_set"] / variance[best], best


def agreement(checks: Rows) -> Claim:
    """The Monte Carlo check at η = 0, where its standard errors can be trusted."""
    usual = [
        abs(float(row["z"]))
        for row in checks
        if float(row["eta"]) == 0.0 and row["estimator"] != "importance_weighted"
    ]
    near = sum(z < 3.0 for z in usual)
    return Claim(
        "Figure 1, checked",
        "variances estimated from sampled gradients",
        f"{near} of {len(usual)} sampled variances at η = 0 are within 3 standard errors of the "
        f"exact ones (largest: {max(usual):.1f})",
        near >= 0.97 * len(usual),
    )


def trajectory(path: Rows) -> Claim:
    """The distance of the loss from that with the exact gradient."""
    loss = {(row["estimator"], row["step"]): float(row["loss_mean"]) for row in path}
    steps = {row["step"] for row in path}

    def away(name: str) -> float:
        return max(abs(loss[name, step] - loss["exact", step]) for step in steps)

    ours, other = away("unordered_set"), away("reinforce")
    return Claim(
        "Optimisation, k = 3",
        "the trajectory is indistinguishable from that with the exact gradient",
        f"its mean loss is never further than {ours:.4f} from that with the exact gradient "
        f"(REINFORCE: {other:.4f})",
        ours < other,
    )
