"""The page: all parts, the style, and the plotting library, in one file that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path

from swor.experiments.runs.folder import RunFolder
from swor.experiments.reproduce.perform import is_done
from swor.experiments.reproduce.report.claims import Claim, summary
from swor.experiments.reproduce.report.deviations import deviations, is_short
from swor.experiments.reproduce.report.figure1 import figure1
from swor.experiments.reproduce.report.html import paragraph, section
from swor.experiments.reproduce.report.provenance import provenance
from swor.experiments.reproduce.report.small import small_domain
from swor.experiments.reproduce.report.tsp import figure3
from swor.experiments.reproduce.report.vae import figure2, table1
from swor.experiments.reproduce.sizes import Sizes
from swor.experiments.reproduce.steps import Step

Part = Callable[[Path], tuple[str, list[Claim]]]


def write_report(folder: RunFolder, steps: Sequence[Step], sizes: Sizes) -> Path:
    """Write ``report.html`` from what has been done.

    Args:
        folder: of the reproduction.
        steps: all of its steps.
        sizes: of its experiments.
    """
    contents, claims = [], []
    for step, part in parts(sizes):
        if is_done(folder.path, step):
            html, found = part(folder.path / step)
        else:
            html, found = missing(step), []
        contents.append(html)
        claims += found
    contents += [deviations(sizes), provenance(folder.path, steps)]
    return folder.write_text("report.html", page(claims, contents, short=is_short(sizes)))


def parts(sizes: Sizes) -> Iterator[tuple[str, Part]]:
    """The parts in the order of the paper, each after the step whose folder it shows."""
    yield "bernoulli", figure1
    for data in sizes.data:
        for dims in sizes.dims:
            yield f"variance-{data}-{dims}", partial(table1, data=data, dims=dims)
            yield f"curves-{data}-{dims}", partial(figure2, data=data, dims=dims)
    yield f"tsp{sizes.nodes}-figures", partial(figure3, nodes=sizes.nodes)
    yield "rules", small_domain


def missing(step: str) -> str:
    """In place of a part whose step failed."""
    text = f"The step {step} was not done; its output is in logs/{step}.txt."
    return section(f"missing-{step}", step, f"<div class='missing'>{paragraph(text)}</div>")


def page(claims: Sequence[Claim], contents: Sequence[str], *, short: bool) -> str:
    """The whole page."""
    from plotly.offline import get_plotlyjs

    agree = sum(claim.agrees is True for claim in claims)
    compared = sum(claim.agrees is not None for claim in claims)
    kind = "A short run" if short else "The paper's sizes"
    lead = f"{kind}: {agree} of {compared} findings that can be compared agree with the paper."
    style, script = (_beside(name) for name in ("page.css", "page.js"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>swor: the paper reproduced</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header>
<h1>Estimating Gradients for Discrete Random Variables by Sampling without Replacement</h1>
<p>Kool, van Hoof and Welling (2020), reproduced with swor. {escape(lead)}</p>
<button id="theme" type="button">Dark</button>
</header>
<main>
<section id="summary"><h2>Agreement</h2>{summary(claims)}</section>
{"".join(contents)}
</main>
<noscript><p class="missing">Charts need JavaScript; all numbers are in the tables.</p></noscript>
<script>{get_plotlyjs()}</script>
<script>{script}</script>
</body>
</html>
"""


def _beside(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
