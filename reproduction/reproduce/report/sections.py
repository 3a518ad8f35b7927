"""The sections of the report: each shows the tables of one step as charts and tables."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pandas as pd

from reproduction.bernoulli.problem import CURVES
from reproduction.bernoulli.task import GRADIENTS
from reproduction.harness.appearance import appearance
from reproduction.reproduce.report.charts import bars, chart, line
from reproduction.vae.published import NEGATIVE_ELBO, PAPER

PARTS = ("encoder", "decoder", "both")


def section(title: str, text: str, *content: str) -> str:
    """Return a section with a heading and a paragraph of plain text."""
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{''.join(content)}</section>"


def table(rows: pd.DataFrame, summary: str | None = None) -> str:
    """Return a table, folded under a summary if there is one."""
    plain = rows.rename_axis(columns=None)
    shown = plain.to_html(index=False, border=0, na_rep="–", float_format="{:.4g}".format)
    shown = f"<div class='scroll'>{shown}</div>"
    return f"<details><summary>{summary}</summary>{shown}</details>" if summary else shown


def labelled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the labels of estimators in the place of their names."""
    return rows.assign(estimator=[appearance(name).label for name in rows["estimator"]])


def figure1(folder: Path) -> str:
    """Return the section on Figure 1."""
    variances, steps = (pd.read_csv(folder / f"{n}.csv") for n in ("variances", "trajectory"))
    finite = variances[variances["variance"].between(0.0, float("inf"), inclusive="neither")]
    views = {
        f"η = {eta:g}".replace("-", "−"): [
            line(rows[rows["estimator"] == c.name], c.name, "evaluations", "variance")
            for c in CURVES
        ]
        for eta, rows in finite.groupby("eta", sort=False)
    }
    descent = [
        line(steps[steps["estimator"] == name][::10], name, "step", "loss_mean")
        for name in GRADIENTS
    ]
    by_k = variances.pivot(index=["estimator", "eta"], columns="k", values="variance")
    return section(
        "Figure 1: gradient variance on the Bernoulli toy problem",
        "Three independent bits have eight outcomes and one parameter η. Each variance is a sum over "
        "all possible samples, so it is exact. Variances of zero, where the sample is the whole domain, "
        "and infinite ones are left out of the chart. The second chart shows gradient descent from "
        "η = −4 with k = 3: the mean loss over all runs.",
        chart(views, x="evaluations of f, including baselines", y="variance", log=True),
        table(labelled(by_k.reset_index()), "Exact variances by k"),
        chart({"": descent}, x="step", y="loss"),
    )


def table1(folder: Path, dims: int) -> str:
    """Return the section on the gradient variance of the VAE."""
    rows = pd.read_csv(folder / "variance.csv")
    last = rows[rows["epoch"] == rows["epoch"].max()].drop(columns=["epoch", "paper"])
    values = last.pivot(
        index=["estimator", "k", "evaluations"],
        columns="part",
        values=["log_variance", "standard_error"],
    )
    values.columns = [
        part if name == "log_variance" else f"{part}, error" for name, part in values.columns
    ]
    values = values.reset_index()
    k = {name: entry.k for name, entry in PAPER.items()}
    paper = values[values["estimator"].map(k) == values["k"]].sort_values("both")
    published = [PAPER[name].log_variance.get(dims) for name in paper["estimator"]]
    few = last[last["k"] <= 4].sort_values("k").drop_duplicates(["estimator", "part"], keep="last")
    epochs = [
        line(mine, name, "epoch", "log_variance", error="standard_error", note=f", k = {k[name]}")
        for name in PAPER
        if len(mine := rows.query("estimator == @name and k == @k[@name] and part == 'encoder'"))
    ]
    return section(
        f"Table 1: gradient log-variance of the VAE, 10^{dims} outcomes",
        "The logarithm of the total variance of the gradient, for the first 100 training images and a "
        "model that RLOO has trained; lower is better. The paper's values are for MNIST after 1000 "
        "epochs. Values can be compared only if the data and the training are the same; the order can.",
        table(labelled(paper[["estimator", "k", "evaluations", "both"]]).assign(paper=published)),
        chart(
            {
                part: [
                    bars(few[few["part"] == part], "estimator", "log_variance", "standard_error")
                ]
                for part in PARTS
            },
            x="log-variance of all estimators, with k = 4 or the largest k below it",
        ),
        table(labelled(values.sort_values("encoder")), "All values"),
        chart({"": epochs}, x="epoch", y="log-variance of the encoder's gradient"),
    )


def figure2(folder: Path, dims: int) -> str:
    """Return the section on the training curves of the VAE."""
    rows = pd.read_csv(folder / "curves.csv")
    views = {
        title: [
            line(
                run, run["estimator"].iloc[0], "epoch", "smoothed", note=f", k = {run['k'].iloc[0]}"
            )
            for _, run in rows[rows["split"] == split].groupby("run")
        ]
        for split, title in (("train", "training images"), ("valid", "validation images"))
    }
    lowest = rows.groupby(["estimator", "k", "split"])["smoothed"].min().unstack().reset_index()
    curves = zip(lowest["estimator"], lowest["k"], strict=True)
    paper = [NEGATIVE_ELBO.get(curve, (None, None)) for curve in curves]
    lowest[["paper, train", "paper, valid"]] = paper
    return section(
        f"Figure 2: training the VAE, 10^{dims} outcomes",
        "The −ELBO in nats during training, smoothed over five points; lower is better. The table has "
        "the lowest value of each curve; the paper's are for 10^20 outcomes on MNIST after 1000 epochs.",
        chart(views, x="epoch", y="−ELBO (nats)", log=True),
        table(labelled(lowest.sort_values("train"))),
    )


def figure3(folder: Path) -> str:
    """Return the section on the travelling salesman."""
    gaps, ranked = (pd.read_csv(folder / f"{name}.csv") for name in ("gaps", "ranking"))
    trained = gaps[gaps["steps"] > 0]
    views = {
        f"training {axis}": [
            line(run, name, axis, "gap", error="gap_standard_error", note=f", seed {seed}")
            for (name, seed), run in trained.groupby(["estimator", "seed"])
        ]
        for axis in ("steps", "instances")
    }
    return section(
        f"Figure 3: the travelling salesman, {gaps['nodes'].iloc[0]} nodes",
        "The optimality gap of greedy decoding in percent, with two standard errors over the validation "
        "instances. All estimators have the same number of tours in a batch: single-sample estimators "
        "one of each instance, the others four. Dash-dotted lines are biased estimators. The table has "
        "the means of the last quarter of the steps. The paper's model for 20 nodes ends at 0.34 %.",
        chart(views, y="gap (%)", log=True),
        table(labelled(ranked)),
    )


def rules(folder: Path) -> str:
    """Return the section on the exact bias and variance of every rule."""
    rows = pd.read_csv(folder / "rules.csv")
    several = rows[rows["k"] > 1]  # with one sample, nearly all rules are the same
    views = {f"k = {k}": [bars(mine, "rule", "variance")] for k, mine in several.groupby("k")}
    by_k = rows.pivot(index="rule", columns="k", values="variance")
    by_k.insert(0, "largest bias", rows.groupby("rule")["bias"].max())
    return section(
        "Theorems: every rule on five outcomes",
        "The total variance of the gradient by the logits, summed over all possible samples. Infinite "
        "variances have no bar. The table has the variances by k.",
        chart(views, x="variance"),
        table(by_k.reset_index()),
    )
