"""The part of the report on the rules, exact on five outcomes."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.reproduce.report.charts import Trace, spec
from swor.experiments.reproduce.report.claims import Claim
from swor.experiments.reproduce.report.html import chart, paragraph, section, table
from swor.experiments.reproduce.report.numbers import finite, read_csv
from swor.experiments.reproduce.rules import PROBABILITIES


def small_domain(folder: Path) -> tuple[str, list[Claim]]:
    """Bias and variance of every rule, by the number of samples."""
    rows = read_csv(folder / "rules.csv")
    names = list(dict.fromkeys(row["rule"] for row in rows))
    ks = list(dict.fromkeys(row["k"] for row in rows))
    variance = {(row["rule"], row["k"]): float(row["variance"]) for row in rows}
    bias = {name: max(float(r["bias"]) for r in rows if r["rule"] == name) for name in names}
    traces = [
        Trace(
            "variance",
            1,
            order := sorted(names, key=lambda name: -variance[name, k]),
            [finite(variance[name, k]) for name in order],
            view=f"k = {k}",
            kind="bar",
            text=[f"bias {bias[name]:.1e}" for name in order],
        )
        for k in ks
    ]
    lines = [[n, f"{bias[n]:.1e}", *(f"{variance[n, k]:.3g}" for k in ks)] for n in names]
    unbiased = {row["rule"] for row in rows if row["unbiased"] == "True"}
    largest = max(bias[name] for name in unbiased)
    chances = ", ".join(map(str, PROBABILITIES))
    return section(
        "rules",
        "Theorems: every rule on five outcomes",
        paragraph(
            f"Total variance of the gradient by the logits, for the probabilities {chances}, summed "
            "over all samples that could be drawn. Move the slider to change the number of samples."
        ),
        chart(
            "rules",
            spec(traces, x="variance", y="", slider=True, views="Samples"),
            "Exact variance of each rule; no bar where it is zero or infinite.",
            "Bar chart: exact variance of each rule; the numbers are in the table below.",
        ),
        table(
            "Largest bias, and variance by k", ["rule", "bias", *(f"k = {k}" for k in ks)], lines
        ),
    ), [
        Claim(
            "Theorems",
            "the unordered set estimator and those it improves on are unbiased",
            f"the largest bias of {len(unbiased)} unbiased rules is {largest:.0e}, by enumeration",
            largest < 1e-9,
        )
    ]
