"""The page of the report: the claims, a section for each result, and the steps."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
        lost = section(
            step, f"The step {step} has not succeeded. Its output is in logs/{step}.txt."
        )
        done = is_done(folder.path, step)
        contents.append(make(folder.path / step) if done else lost)
    contents.append(provenance(folder.path, steps))
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
        f"{kind} {summary(findings)} {CONVENTION} The documentation explains each deviation from the "
        "paper on its page about reproducing it."
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
