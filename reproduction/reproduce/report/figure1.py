"""The section on Figure 1, the gradient variance on the Bernoulli toy problem."""

from __future__ import annotations

from pathlib import Path

from reproduction.bernoulli.problem import CURVES
from reproduction.bernoulli.task import GRADIENTS
from reproduction.harness.appearance import appearance
from reproduction.reproduce.report import html

LABELS = {curve.name: appearance(curve.name).label for curve in CURVES}

CLOSE = 10.0
"""Variances within this factor count as close: those of a panel span three to nine decades."""

TEXT = (
    "The toy problem has three independent bits, hence eight outcomes, and one parameter η. The paper "
    "estimates each variance from 1000 sampled gradients. Here each variance is a finite sum over all "
    "possible samples, so it is exact up to rounding. An estimator with a sampled baseline uses twice "
    "as many evaluations of f. The chart leaves out variances of zero, where the sample covers the whole "
    "domain, and the infinite variances of the importance-weighted estimator for k ≤ 3."
)
ALTERNATIVE = (
    "Line chart: variance of the gradient of the Bernoulli toy problem against the number of "
    "evaluations, with one line per estimator. The values are in the table below."
)


def figure1(folder: Path) -> html.Section:
    """Return the section, and its findings."""
    rows = html.read_csv(folder / "variances.csv")
    steps = html.read_csv(folder / "trajectory.csv")
    content = html.section(
        "figure1",
        "Figure 1: gradient variance on the Bernoulli toy problem",
        html.paragraph(TEXT),
        variance_chart(rows),
        html.folded("All values", variance_table(rows)),
        trajectory_chart(steps),
        html.image(folder / "figure1.png", ALTERNATIVE, "Figure 1 as a picture for printing"),
    )
    checks = html.read_csv(folder / "monte_carlo.csv")
    return content, [*lowest_variance(rows), monte_carlo(checks), trajectory(steps)]


def variance_chart(rows: html.Rows) -> str:
    """Return the chart of the exact variances, with a view for each η."""
    return html.chart(
        "figure1",
        [variance_trace(rows, eta, name) for eta in etas(rows) for name in LABELS],
        x="evaluations of f, including baselines",
        y="variance of the gradient",
        log=True,
        views="Parameter",
        caption="Exact variance. Click on an estimator in the legend to hide it; double-click to show "
        "it alone.",
        alternative=ALTERNATIVE,
    )


def variance_trace(rows: html.Rows, eta: str, name: str) -> html.Trace:
    """Return the line of an estimator for an η."""
    mine = [row for row in rows if (row["eta"], row["estimator"]) == (eta, name)]
    look = appearance(name)
    return html.Trace(
        look.label,
        look.colour,
        [int(row["evaluations"]) for row in mine],
        [html.on_log_axis(float(row["variance"])) for row in mine],
        view=f"η = {shown(eta)}",
        dash=html.DASHES[look.line],
        text=[f"k = {row['k']}" for row in mine],
    )


def etas(rows: html.Rows) -> list[str]:
    """Return the values of η in the order of the table."""
    return list(dict.fromkeys(row["eta"] for row in rows))


def shown(eta: str) -> str:
    """Format an η.

    >>> shown("-4.0")
    '−4'
    """
    return html.minus(f"{float(eta):g}")


def variance_table(rows: html.Rows) -> str:
    """Return the values of the chart."""
    ks = sorted({int(row["k"]) for row in rows})
    variance = {(r["eta"], r["estimator"], int(r["k"])): float(r["variance"]) for r in rows}
    lines = [
        [LABELS[name], shown(eta), *(f"{variance[eta, name, k]:.3g}" for k in ks)]
        for eta in etas(rows)
        for name in LABELS
    ]
    head = ["estimator", "η", *map(str, ks)]
    return html.table("Exact variance by the number of samples k", head, lines)


def trajectory_chart(steps: html.Rows) -> str:
    """Return the chart of the optimisation with different gradients."""
    return html.chart(
        "trajectory",
        [trajectory_trace(steps, name) for name in GRADIENTS],
        x="step",
        y="loss",
        caption="Gradient descent from η = −4 with k = 3 samples: the mean loss over all runs.",
        alternative="Line chart: the loss during optimisation with three different gradients.",
    )


def trajectory_trace(steps: html.Rows, name: str) -> html.Trace:
    """Return the mean loss of an optimisation at every tenth step, which is enough to see it."""
    mine = [row for row in steps if row["estimator"] == name][::10]
    look = appearance(name)
    return html.Trace(
        look.label,
        look.colour,
        [int(row["step"]) for row in mine],
        [float(row["loss_mean"]) for row in mine],
        dash=html.DASHES[look.line],
    )


def lowest_variance(rows: html.Rows) -> list[html.Finding]:
    """Compare the unordered set estimator with the lowest variance at equal evaluations, by η."""
    findings = []
    for eta in etas(rows):
        mine = [row for row in rows if row["eta"] == eta]
        ratios = [ratio_to_lowest(mine, evaluations) for evaluations in range(2, 8)]
        first = sum(ratio < 1.0 + 1e-9 for ratio, _ in ratios)
        ours = f"It has the lowest variance for {first} of {len(ratios)} numbers of evaluations."
        worst, best = max(ratios)
        if first < len(ratios):
            ours += f" Otherwise its variance is at most {worst:.1f} times that of {LABELS[best]}."
        paper = "The unordered set estimator has the lowest variance, or nearly so, for all k."
        findings.append(html.Finding(f"Figure 1, η = {shown(eta)}", paper, ours, worst < CLOSE))
    return findings


def ratio_to_lowest(rows: html.Rows, evaluations: int) -> tuple[float, str]:
    """Divide the variance of the unordered set estimator by the lowest, and name the latter's estimator."""
    variance = {
        row["estimator"]: float(row["variance"])
        for row in rows
        if int(row["evaluations"]) == evaluations
    }
    best = min(variance, key=lambda name: variance[name])
    return variance["unordered_set"] / variance[best], best


def monte_carlo(checks: html.Rows) -> html.Finding:
    """Compare exact and sampled variances at η = 0, where the standard errors are reliable."""
    scores = [
        abs(float(row["z"]))
        for row in checks
        if float(row["eta"]) == 0.0 and row["estimator"] != "importance_weighted"
    ]
    near = sum(z < 3.0 for z in scores)
    return html.Finding(
        "Figure 1, Monte Carlo check",
        "The variances are estimated from sampled gradients.",
        f"At η = 0, {near} of {len(scores)} variances that are estimated from samples are within 3 "
        f"standard errors of the exact ones. The largest deviation is {max(scores):.1f} standard "
        "errors.",
        near >= 0.97 * len(scores),
    )


def trajectory(steps: html.Rows) -> html.Finding:
    """Compare the loss during optimisation with that of the exact gradient."""
    loss = {(row["estimator"], row["step"]): float(row["loss_mean"]) for row in steps}
    numbers = {row["step"] for row in steps}

    def distance(name: str) -> float:
        return max(abs(loss[name, step] - loss["exact", step]) for step in numbers)

    ours, other = distance("unordered_set"), distance("rloo")
    return html.Finding(
        "Figure 1, optimisation with k = 3",
        "The unordered set estimator's trajectory is indistinguishable from that of the exact gradient.",
        f"Its mean loss differs by at most {ours:.4f} from that of the exact gradient. The mean loss "
        f"of REINFORCE differs by up to {other:.4f}.",
        ours < other,
    )
