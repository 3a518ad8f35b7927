"""The report: one page with the claims, a section for each result, the deviations, and the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.express as px

from reproduction.claims.claim import Finding
from reproduction.claims.page import CONVENTION, HEADER, rows, summary
from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.folder import RunFolder, read_json
from reproduction.reproduce.execution import Outcome, is_done, outcome
from reproduction.reproduce.steps import Sizes, Step
from reproduction.vae.published import NEGATIVE_ELBO, PAPER

DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
"""Styles of lines, from matplotlib's names to plotly's."""

DEVIATIONS = (
    "Figure 1 is exact. The paper estimates each variance from 1000 sampled gradients; at η = −4 such "
    "estimates rest on rare events, and are wrong by up to a factor of 13.",
    "Leave-one-out ratios are exact up to rounding. The paper's quadrature is wrong by 2 to 7 % for one or "
    "two samples, and by many orders of magnitude if the sample has nearly all of the probability.",
    "Table 1 is measured on one fixed minibatch, as the paper describes. The paper's code draws a new one "
    "for every repetition, which adds the variance of the data to every value.",
    "ARSM and RELAX are unbiased here. In the paper's code, the gradient of ARSM is 20 times too large, "
    "which adds 6 to the log-variance, and RELAX is biased, with an untrained control variate.",
    "REINFORCE and RELAX have k = 1 in Table 1, as in the paper's code, and ARSM uses 46 evaluations.",
    "The restricted unordered set estimator uses probabilities that are renormalised without the summed "
    "outcomes. Only with these do the paper's equations agree with one another.",
)
SHORTENED = (
    "This is a short run: the VAE is trained on the 8 × 8 digits of scikit-learn, and the travelling "
    "salesman has few nodes and steps. There is one seed, so that no difference between runs can be told "
    "from noise; the folder results of the repository has longer runs. “python -m reproduction reproduce "
    "--full” runs the paper's sizes."
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>swor: the paper reproduced</title>
<link rel="icon" href="data:,">
<style>
body {{ margin: 0 auto; max-width: 66rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; }}
div.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.85rem; }}
th, td {{ padding: 0.25rem 0.6rem; border-bottom: 1px solid #e3e7ec; text-align: left; }}
.agrees {{ color: #0a7a4b; }}
.differs {{ color: #b3321b; }}
</style>
<script>{plotly}</script>
</head>
<body>
<h1>Estimating Gradients for Discrete Random Variables by Sampling without Replacement</h1>
{content}
</body>
</html>
"""


class Section(NamedTuple):
    """A part of the page: its title, a paragraph of text, and its charts and tables as HTML."""

    title: str
    text: str
    content: str = ""


def write_report(
    folder: RunFolder, steps: Sequence[Step], sizes: Sizes, findings: Sequence[Finding]
) -> Path:
    """Write ``report.html`` about the steps that have succeeded."""
    contents = [verdicts(findings, sizes)]
    for step, make in results(sizes):
        missing = Section(step, f"The step {step} has not succeeded; see logs/{step}.txt.")
        contents.append(make(folder.path / step) if is_done(folder.path, step) else missing)
    items = "".join(f"<li>{escape(item)}</li>" for item in DEVIATIONS)
    contents.append(Section("Deviations from the paper", "", f"<ul>{items}</ul>"))
    contents.append(provenance(folder.path, steps))
    return folder.write_text("report.html", page(contents))


def page(sections: Sequence[Section]) -> str:
    """Return the whole page, which includes its style and the plotting library."""
    from plotly.offline import get_plotlyjs

    parts = (f"<h2>{escape(s.title)}</h2><p>{escape(s.text)}</p>{s.content}" for s in sections)
    return PAGE.format(plotly=get_plotlyjs(), content="\n".join(parts))


def verdicts(findings: Sequence[Finding], sizes: Sizes) -> Section:
    """Return the section on the claims."""
    kind = SHORTENED if sizes.short else "The experiments have the paper's sizes."
    cells = table(pd.DataFrame(rows(findings), columns=HEADER))
    for verdict in ("agrees", "differs"):
        cells = cells.replace(f"<td>{verdict}</td>", f"<td class='{verdict}'>{verdict}</td>")
    return Section("Claims and verdicts", f"{kind} {summary(findings)} {CONVENTION}", cells)


def results(sizes: Sizes) -> Iterator[tuple[str, Callable[[Path], Section]]]:
    """Yield the sections in the order of the paper, each with the step whose folder it shows."""
    yield "bernoulli", figure1
    for data, dims in product(sizes.data, sizes.dims):
        yield f"variance-{data}-{dims}", partial(table1, dims=dims)
        yield f"curves-{data}-{dims}", partial(figure2, dims=dims)
    yield f"tsp{sizes.tsp['nodes']}-figures", figure3
    yield "rules", theorems


def figure1(folder: Path) -> Section:
    """Show the exact variances, and gradient descent."""
    variances, steps = (pd.read_csv(folder / f"{n}.csv") for n in ("variances", "trajectory"))
    by_k = variances.pivot(index=["estimator", "eta"], columns="k", values="variance")
    return Section(
        "Figure 1: gradient variance on the Bernoulli toy problem",
        "Three independent bits have eight outcomes and one parameter η. Each variance is a sum over "
        "all possible samples, so it is exact. Variances of zero, where the sample is the whole domain, "
        "and infinite ones are left out of the chart. The second chart shows gradient descent from "
        "η = −4 with k = 3: the mean loss over all runs.",
        lines(variances[variances["variance"] > 0.0], "evaluations", "variance", facet="eta")
        + table(by_k.reset_index())
        + lines(steps[steps["step"] % 10 == 0], "step", "loss_mean"),
    )


def table1(folder: Path, dims: int) -> Section:
    """Show the gradient variance of the VAE beside that of the paper."""
    measured = pd.read_csv(folder / "variance.csv").drop(columns="paper")
    last = measured[measured["epoch"] == measured["epoch"].max()]
    values = last.pivot(
        index=["estimator", "k", "evaluations"], columns="part", values="log_variance"
    )
    values = values.reset_index().sort_values("both")
    values["paper, both"] = [
        PAPER[name].log_variance[dims] if name in PAPER and PAPER[name].k == k else None
        for name, k in zip(values["estimator"], values["k"], strict=True)
    ]
    few = last[last["k"] <= 4].sort_values("k").drop_duplicates(["estimator", "part"], keep="last")
    return Section(
        f"Table 1: gradient log-variance of the VAE, 10^{dims} outcomes",
        "The logarithm of the total variance of the gradient, for the first 100 training images and a "
        "model that RLOO has trained; lower is better. The paper's values are for MNIST after 1000 "
        "epochs. Values can be compared only if the data and the training are the same; the order can. "
        "The chart has k = 4, or the largest k below it.",
        table(values) + bars(few, "estimator", "log_variance", "part", "standard_error"),
    )


def figure2(folder: Path, dims: int) -> Section:
    """Show the training curves of the VAE."""
    curves = pd.read_csv(folder / "curves.csv")
    lowest = curves.groupby(["estimator", "k", "split"])["smoothed"].min().unstack().reset_index()
    published = [
        NEGATIVE_ELBO.get((name, k), (None, None))
        for name, k in zip(lowest["estimator"], lowest["k"], strict=True)
    ]
    lowest[["paper, train", "paper, valid"]] = published
    return Section(
        f"Figure 2: training the VAE, 10^{dims} outcomes",
        "The −ELBO in nats during training, smoothed over five points; lower is better. The table has "
        "the lowest value of each curve; the paper's are for 10^20 outcomes on MNIST after 1000 epochs.",
        lines(curves, "epoch", "smoothed", facet="split", run="run") + table(lowest),
    )


def figure3(folder: Path) -> Section:
    """Show the gaps of the travelling salesman."""
    gaps, ranked = (pd.read_csv(folder / f"{name}.csv") for name in ("gaps", "ranking"))
    trained = gaps[gaps["steps"] > 0]
    return Section(
        f"Figure 3: the travelling salesman, {gaps['nodes'].iloc[0]} nodes",
        "The optimality gap of greedy decoding in percent, against training steps and instances. All "
        "estimators have the same number of tours in a batch: single-sample estimators one of each "
        "instance, the others four. Dash-dotted lines are biased estimators. The table has the means "
        "of the last quarter of the steps. The paper's model for 20 nodes ends at 0.34 %.",
        lines(trained, "steps", "gap", run="seed")
        + lines(trained, "instances", "gap", run="seed")
        + table(ranked),
    )


def theorems(folder: Path) -> Section:
    """Show the exact bias and variance of every rule."""
    exact = pd.read_csv(folder / "rules.csv").rename(columns={"rule": "estimator"})
    by_k = exact.pivot(index="estimator", columns="k", values="variance")
    by_k.insert(0, "largest bias", exact.groupby("estimator")["bias"].max())
    return Section(
        "Theorems: every rule on five outcomes",
        "The total variance of the gradient by the logits, summed over all possible samples. Infinite "
        "variances have no bar. The table has the variances by k.",
        bars(exact[exact["k"] > 1], "estimator", "variance", "k") + table(by_k.reset_index()),
    )


def provenance(folder: Path, steps: Sequence[Step]) -> Section:
    """Show the settings, the versions, and the durations of steps."""
    stored = read_json(folder / "settings.json")
    facts = {"command": stored["command"], **stored["versions"], **stored["settings"]}
    ended = [outcome(folder, step.name) or Outcome(step.name, error="not run") for step in steps]
    times = [[state.name, f"{state.seconds:.0f} s", state.error or "done"] for state in ended]
    return Section(
        "Steps and settings",
        "The folder of each step holds its settings and its results.",
        table(pd.DataFrame(facts.items(), columns=["name", "value"]))
        + table(pd.DataFrame(times, columns=["step", "duration", "outcome"])),
    )


def table(cells: pd.DataFrame) -> str:
    """Return a table, with the labels of estimators in the place of their names."""
    shown = cells.rename_axis(columns=None)
    if "estimator" in shown:
        shown = shown.assign(estimator=[label(name) for name in shown["estimator"]])
    html = shown.to_html(index=False, border=0, na_rep="–", float_format="{:.4g}".format)
    return f"<div class='scroll'>{html}</div>"


def lines(
    points: pd.DataFrame, x: str, y: str, *, facet: str | None = None, run: str | None = None
) -> str:
    """Return a chart with a line for each estimator, in a panel for each value of a column.

    Args:
        points: rows of a table with the column "estimator", and "k" if estimators have several;
            infinite values leave a gap.
        x: column of the horizontal axis.
        y: column of the vertical axis, which is logarithmic.
        facet: column of the panels.
        run: column that tells several lines of the same estimator apart.
    """
    labels: dict[str, str] = {}  # of lines, with the names of their estimators
    shown = points.assign(**{y: finite(points[y])}).astype({"estimator": object})
    for name in in_order(points["estimator"]):
        mine = points["estimator"] == name
        numbers = sorted(points[mine]["k"].unique()) if "k" in points else []
        for k in numbers if len(numbers) > 1 else [None]:
            line = label(name) + ("" if k is None else f", k = {k}")
            shown.loc[mine if k is None else mine & (points["k"] == k), "estimator"] = line
            labels[line] = name
    figure = px.line(
        shown,
        x=x,
        y=y,
        log_y=True,
        line_group=run,
        facet_col=facet,
        color="estimator",
        line_dash="estimator",
        color_discrete_sequence=[appearance(name).colour for name in labels.values()],
        line_dash_sequence=[DASHES[appearance(name).line] for name in labels.values()],
        category_orders={"estimator": list(labels)},
    )
    names = list(labels.values())
    more = {line for i, (line, name) in enumerate(labels.items()) if name in names[:i]}
    figure.for_each_trace(lambda trace: trace.update(line_width=4 if trace.name in more else 2))
    return html(figure, height=460)


def bars(cells: pd.DataFrame, y: str, x: str, facet: str, error: str | None = None) -> str:
    """Return horizontal bars with two standard errors, the lowest at the top, in panels."""
    shown = cells.assign(**{y: cells[y].map(label), x: finite(cells[x])})
    shown["error"] = 2.0 * cells[error] if error else np.nan
    order = shown.groupby(y)[x].mean().sort_values().index
    figure = px.bar(shown, x=x, y=y, facet_col=facet, error_x="error", category_orders={y: order})
    return html(figure, height=150 + 20 * len(order))


def label(name: str) -> str:
    """Return the label of an estimator."""
    return appearance(name).label


def finite(values: pd.Series[float]) -> pd.Series[float]:
    """Return values with gaps where they are infinite."""
    return values.where(np.isfinite(values))


def html(figure: Any, height: int) -> str:
    """Return a chart as a fragment of a page that has plotly."""
    figure.update_layout(template="plotly_white", height=height)
    return str(figure.to_html(full_html=False, include_plotlyjs=False))
