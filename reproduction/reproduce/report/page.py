"""The page of the report: its sections, the deviations from the paper, and what was run."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from reproduction.harness.folder import RunFolder
from reproduction.reproduce.execution import Outcome, is_done, outcome
from reproduction.reproduce.report import html
from reproduction.reproduce.report.figure1 import figure1
from reproduction.reproduce.report.rules import theorems
from reproduction.reproduce.report.tsp import figure3
from reproduction.reproduce.report.vae import figure2, table1
from reproduction.reproduce.settings import Sizes
from reproduction.reproduce.steps import Step

DEVIATIONS = (
    "Figure 1 is exact. The paper estimates each variance from 1000 sampled gradients. At η = −4 such "
    "estimates are dominated by rare events, and wrong by up to a factor of 13.",
    "At η = 0 all outcomes of the toy problem are equally likely. Deterministic sum-and-sample then sums "
    "the outcomes with the lowest indices.",
    "Leave-one-out ratios are exact sums, or computed by a quadrature that is exact up to rounding. The "
    "paper's quadrature is wrong by 2 to 7 % for one or two samples, and by many orders of magnitude "
    "when the sample covers nearly all of the probability.",
    "The gradient variance in Table 1 is measured on one fixed minibatch, as the paper describes. The "
    "paper's released code draws a new minibatch for every repetition, which adds the variance of the "
    "data to every value. This may be why three estimators have the same value on the small domain.",
    "REINFORCE and RELAX use k = 1 in Table 1, as in the released code. ARSM uses 46 evaluations; the "
    "released code uses 55. The tables list the evaluations of all estimators, and also compare the "
    "estimators at equal evaluations.",
    "The gradient of ARSM in the released code is 20 times too large, which adds 6 to the log-variance. "
    "Here ARSM is unbiased, and tests verify it.",
    "RELAX is biased in the released code, because its conditional noise is incorrect and all images of "
    "a batch share the same noise. Its control variate is also untrained when the variance is measured. "
    "Here RELAX is unbiased, and its control variate is trained first.",
    "The restricted unordered set estimator uses probabilities that are renormalised without the summed "
    "outcomes. Only with these do the paper's equations agree with one another.",
    "The full run trains the VAE with a batch size of 200, as the released code does.",
)


def write_report(folder: RunFolder, steps: Sequence[Step], sizes: Sizes) -> Path:
    """Write ``report.html`` about the steps that have succeeded.

    Args:
        folder: folder of the reproduction.
        steps: all steps of the reproduction.
        sizes: sizes of the experiments.
    """
    contents, findings = [], []
    for step, make in sections(sizes):
        done = is_done(folder.path, step)
        content, found = make(folder.path / step) if done else (missing(step), [])
        contents.append(content)
        findings += found
    contents += [deviations(sizes), provenance(folder.path, steps)]
    return folder.write_text("report.html", page(findings, contents, short=sizes.short))


def sections(sizes: Sizes) -> Iterator[tuple[str, Callable[[Path], html.Section]]]:
    """Yield the sections in the order of the paper, each with the step whose folder it shows."""
    yield "bernoulli", figure1
    for data, dims in product(sizes.data, sizes.dims):
        yield f"variance-{data}-{dims}", partial(table1, data=data, dims=dims)
        yield f"curves-{data}-{dims}", partial(figure2, data=data, dims=dims)
    yield f"tsp{sizes.nodes}-figures", partial(figure3, nodes=sizes.nodes)
    yield "rules", theorems


def missing(step: str) -> str:
    """Return the section that replaces the one of a step that has not succeeded."""
    text = f"The step {step} has not succeeded. Its output is in logs/{step}.txt."
    content = f"<div class='missing'>{html.paragraph(text)}</div>"
    return html.section(f"missing-{step}", step, content)


def page(findings: Sequence[html.Finding], contents: Sequence[str], *, short: bool) -> str:
    """Return the whole page, which includes its style, its script and the plotting library."""
    from plotly.offline import get_plotlyjs

    agree = sum(finding.agrees is True for finding in findings)
    compared = sum(finding.agrees is not None for finding in findings)
    kind = "This is a short run." if short else "The experiments have the paper's sizes."
    lead = f"{kind} {agree} of the {compared} findings that can be compared agree with the paper."
    return Template(_beside("page.html")).substitute(
        style=_beside("page.css"),
        script=_beside("page.js"),
        plotly=get_plotlyjs(),
        lead=escape(lead),
        findings=html.cards(findings),
        sections="".join(contents),
    )


def _beside(name: str) -> str:
    """Read a file from the folder of this module."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def deviations(sizes: Sizes) -> str:
    """Return the section on what differs from the paper, and why."""
    items = (shortened(sizes), *DEVIATIONS) if sizes.short else DEVIATIONS
    return html.section("deviations", "Deviations from the paper", html.bullets(items))


def shortened(sizes: Sizes) -> str:
    """Describe what a short run reduces."""
    return (
        "This is a short run. The VAE is trained on the 8 × 8 digits of scikit-learn for "
        f"{sizes.epochs} epochs with a batch size of {sizes.batch_size}, and its variances are "
        f"estimated from {sizes.repetitions} gradients. The travelling salesman has {sizes.nodes} "
        f"nodes, {sizes.steps} training steps and a learning rate of {sizes.learning_rate:g}. There is "
        "one seed, so small differences are not significant. “python -m reproduction reproduce "
        "--full” runs the paper's sizes."
    )


def provenance(folder: Path, steps: Sequence[Step]) -> str:
    """Return the section on settings, versions, hardware and durations."""
    stored = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    ended = [outcome(folder, step.name) or Outcome(step.name, error="not run") for step in steps]
    settings = [[name, json.dumps(value)] for name, value in stored["settings"].items()]
    times = [
        [o.name, f"{o.seconds:.0f} s", f"{o.cpu_seconds:.0f} s", o.error or "done"] for o in ended
    ]
    return html.section(
        "run",
        "What was run",
        html.table("Software and hardware", ["item", "value"], [*facts(stored, ended)]),
        html.folded("Settings", html.table("Sizes", ["setting", "value"], settings)),
        html.folded(
            "Steps",
            html.table("Steps", ["step", "wall-clock time", "processor time", "outcome"], times)
            + html.paragraph("The folder of each step holds its settings.json and its results."),
        ),
    )


def facts(stored: Mapping[str, Any], ended: Sequence[Outcome]) -> Iterator[list[object]]:
    """Yield the names and values of what is needed to run the reproduction again."""
    yield ["command", stored["command"]]
    yield ["seeds", ", ".join(map(str, stored["settings"]["seeds"]))]
    yield from ([name, version] for name, version in stored["versions"].items())
    yield ["machines", ", ".join(sorted({o.machine for o in ended if o.machine})) or "–"]
    yield ["processor", processor()]
    yield ["processor time", f"{sum(o.cpu_seconds for o in ended) / 60:.1f} minutes"]
    wall = sum(o.seconds for o in ended) / 60
    yield ["wall-clock time", f"{wall:.1f} minutes over all steps, with one thread each"]


def processor() -> str:
    """Return the model and the number of processors."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} logical cores"
