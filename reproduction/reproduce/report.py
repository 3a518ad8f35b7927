"""The report: one page with the claims, a section for each result, the deviations, and the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import product
from pathlib import Path

import pandas as pd

from reproduction.claims.claim import Finding
from reproduction.claims.listed import DOMAINS
from reproduction.claims.page import CONVENTION, summary
from reproduction.harness.folder import RunFolder, read_json
from reproduction.reproduce.charts import dots, lines
from reproduction.reproduce.execution import Outcome, is_done, outcome
from reproduction.reproduce.page import Section, about, cards, page, table
from reproduction.reproduce.steps import Sizes, Step
from reproduction.vae.published import NEGATIVE_ELBO, PAPER

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
    version = read_json(folder.path / "settings.json")["versions"]["swor"]
    return folder.write_text("report.html", page(contents, about(folder.path, version)))


def verdicts(findings: Sequence[Finding], sizes: Sizes) -> Section:
    """Return the section on the claims, which says what the command prints."""
    kind = SHORTENED if sizes.short else "The experiments have the paper's sizes."
    counted = f"<p><strong>{escape(summary(findings))}</strong></p>"
    return Section("Claims and verdicts", f"{kind} {CONVENTION}", counted + cards(findings))


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
    shown = variances[variances["variance"] > 0.0].drop(columns="k")  # a line has all k
    by_k = variances.pivot(index=["estimator", "eta"], columns="k", values="variance")
    by_k = by_k.rename(columns="k = {}".format).reset_index().rename(columns={"eta": "η"})
    return Section(
        "Figure 1: gradient variance on the Bernoulli toy problem",
        "Three independent bits have eight outcomes and one parameter η. Each variance is a sum over "
        "all possible samples, so it is exact. Variances of zero, where the sample is the whole domain, "
        "and infinite ones are left out of the chart. The second chart shows gradient descent from "
        "η = −4 with k = 3: the mean loss over all runs.",
        lines(shown, "evaluations", "variance", facet="eta")
        + table(by_k)
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
    values = values[["estimator", "k", "evaluations", "both", "encoder", "decoder"]]
    values["paper, both"] = [
        PAPER[name].log_variance[dims] if name in PAPER and PAPER[name].k == k else None
        for name, k in zip(values["estimator"], values["k"], strict=True)
    ]
    values = values.rename(columns={"both": "encoder and decoder", "paper, both": "paper"})
    few = last[last["k"] <= 4].sort_values("k").drop_duplicates(["estimator", "part"], keep="last")
    return Section(
        f"Table 1: gradient log-variance of the VAE, {DOMAINS[dims]}",
        "The logarithm of the total variance of the gradient, for the first 100 training images and a "
        "model that RLOO has trained; lower is better. The paper's values are for MNIST after 1000 "
        "epochs. Values can be compared only if the data and the training are the same; the order can. "
        "The chart has k = 4, or the largest k below it, with two standard errors; open circles are "
        "biased estimators, whose variance alone says little.",
        dots(few, "log_variance", "part", "standard_error") + table(values),
    )


def figure2(folder: Path, dims: int) -> Section:
    """Show the training curves of the VAE."""
    curves = pd.read_csv(folder / "curves.csv")
    lowest = curves.groupby(["estimator", "k", "split"])["smoothed"].min().unstack().reset_index()
    published = [
        NEGATIVE_ELBO.get((name, k), (None, None))
        for name, k in zip(lowest["estimator"], lowest["k"], strict=True)
    ]
    lowest[["training in the paper", "validation in the paper"]] = published
    lowest = lowest.rename(columns={"train": "training", "valid": "validation"})
    return Section(
        f"Figure 2: training the VAE, {DOMAINS[dims]}",
        "The −ELBO in nats during training; lower is better. Points are measured; lines are their means "
        "over a window of five, or connect them where a curve has fewer than ten. The table has the "
        "lowest value of each line; the paper's are for 10²⁰ outcomes on MNIST after 1000 epochs.",
        lines(curves, "epoch", "smoothed", facet="split", run="run", raw="negative_elbo")
        + table(lowest),
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
    by_k = by_k.rename(columns="k = {}".format)
    by_k.insert(0, "largest bias", exact.groupby("estimator")["bias"].max())
    return Section(
        "Theorems: every rule on five outcomes",
        "The total variance of the gradient by the logits, summed over all possible samples. Infinite "
        "variances have no dot; open circles are biased rules. The table has the variances by k.",
        dots(exact[exact["k"] > 1], "variance", "k", log=True) + table(by_k.reset_index()),
    )


def provenance(folder: Path, steps: Sequence[Step]) -> Section:
    """Show the settings, the versions, and the durations of steps."""
    stored = read_json(folder / "settings.json")
    facts = {"command": stored["command"], **stored["versions"], **stored["settings"]}
    ended = [outcome(folder, step.name) or Outcome(step.name, error="not run") for step in steps]
    settings = table(pd.DataFrame(facts.items(), columns=["name", "value"]))
    times = [[state.name, f"{state.seconds:.0f} s", state.error or "done"] for state in ended]
    return Section(
        "Steps and settings",
        "The folder of each step holds its settings and its results.",
        table(pd.DataFrame(times, columns=["step", "duration", "outcome"]))
        + f"<details><summary>Command, versions and settings</summary>{settings}</details>",
    )
