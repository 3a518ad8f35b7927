"""The page of the report: the claims, a section for each result, the deviations, and the steps."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import product
from pathlib import Path

import pandas as pd

from reproduction.claims.claim import Finding
from reproduction.claims.page import CONVENTION, HEADER, rows, summary
from reproduction.harness.folder import RunFolder, read_json
from reproduction.reproduce.execution import Outcome, is_done, outcome
from reproduction.reproduce.report.sections import (
    figure1,
    figure2,
    figure3,
    rules,
    section,
    table,
    table1,
)
from reproduction.reproduce.settings import Sizes
from reproduction.reproduce.steps import Step

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

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>swor: the paper reproduced</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<script>{plotly}</script>
</head>
<body>
<h1>Estimating Gradients for Discrete Random Variables by Sampling without Replacement</h1>
{content}
</body>
</html>
"""


def write_report(
    folder: RunFolder, steps: Sequence[Step], sizes: Sizes, findings: Sequence[Finding]
) -> Path:
    """Write ``report.html`` about the steps that have succeeded.

    Args:
        folder: folder of the reproduction.
        steps: all steps of the reproduction.
        sizes: sizes of the experiments.
        findings: verdicts of this reproduction on the claims.
    """
    contents = [verdicts(findings, sizes)]
    for step, make in sections(sizes):
        done = is_done(folder.path, step)
        contents.append(make(folder.path / step) if done else missing(step))
    contents += [deviations(), provenance(folder.path, steps)]
    return folder.write_text("report.html", page("".join(contents)))


def page(content: str) -> str:
    """Return the whole page, which includes its style and the plotting library."""
    from plotly.offline import get_plotlyjs

    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return PAGE.format(style=style, plotly=get_plotlyjs(), content=content)


def verdicts(findings: Sequence[Finding], sizes: Sizes) -> str:
    """Return the section on the claims."""
    kind = shortened(sizes) if sizes.short else "The experiments have the paper's sizes."
    cells = pd.DataFrame(rows(findings), columns=HEADER)
    shown = table(cells)
    for verdict in ("agrees", "differs"):
        shown = shown.replace(f"<td>{verdict}</td>", f"<td class='{verdict}'>{verdict}</td>")
    text = (
        "This page reproduces the paper by Kool, van Hoof and Welling (2020) with swor. "
        f"{kind} {summary(findings)} {CONVENTION}"
    )
    return section("Claims and verdicts", text, shown)


def shortened(sizes: Sizes) -> str:
    """Describe what a short run reduces."""
    return (
        "This is a short run. The VAE is trained on the 8 × 8 digits of scikit-learn for "
        f"{sizes.epochs} epochs, and its variances are estimated from {sizes.repetitions} gradients. The "
        f"travelling salesman has {sizes.nodes} nodes and {sizes.steps} training steps. There is one "
        "seed, so that no difference between runs can be told from noise; the folder results of the "
        "repository has longer runs. “python -m reproduction reproduce --full” runs the paper's sizes."
    )


def sections(sizes: Sizes) -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Yield the sections in the order of the paper, each with the step whose folder it shows."""
    yield "bernoulli", figure1
    for data, dims in product(sizes.data, sizes.dims):
        yield f"variance-{data}-{dims}", partial(table1, dims=dims)
        yield f"curves-{data}-{dims}", partial(figure2, dims=dims)
    yield f"tsp{sizes.nodes}-figures", figure3
    yield "rules", rules


def missing(step: str) -> str:
    """Return the section that replaces the one of a step that has not succeeded."""
    return section(step, f"The step {step} has not succeeded. Its output is in logs/{step}.txt.")


def deviations() -> str:
    """Return the section on the differences from the paper, and their reasons."""
    items = "".join(f"<li>{escape(item)}</li>" for item in DEVIATIONS)
    return section("Deviations from the paper", "", f"<ul>{items}</ul>")


def provenance(folder: Path, steps: Sequence[Step]) -> str:
    """Return the section on settings, versions, hardware and durations."""
    stored = read_json(folder / "settings.json")
    ended = [outcome(folder, step.name) or Outcome(step.name, error="not run") for step in steps]
    facts = {
        "command": stored["command"],
        **stored["versions"],
        "machines": ", ".join(sorted({state.machine for state in ended if state.machine})),
        "processor": f"{platform.processor() or platform.machine()}, {os.cpu_count()} logical cores",
        "duration": f"{sum(state.seconds for state in ended) / 60:.1f} minutes over all steps",
        **stored["settings"],
    }
    times = pd.DataFrame(
        [[state.name, f"{state.seconds:.0f} s", state.error or "done"] for state in ended],
        columns=["step", "duration", "outcome"],
    )
    return section(
        "Steps and settings",
        "The folder of each step holds its settings and its results.",
        table(
            pd.DataFrame(facts.items(), columns=["name", "value"]), "Software, hardware, settings"
        ),
        table(times, "Steps"),
    )
