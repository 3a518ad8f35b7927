"""``swor lm-figures``: estimators of language model runs beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import tyro

from swor.experiments.errors import UserError
from swor.experiments.folder import create, unused
from swor.experiments.lm.settings import LanguageModel
from swor.experiments.records import read_records
from swor.experiments.resume import read_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {"unordered_set": "Unordered set", "reinforce": "REINFORCE, leave-one-out"}
COLOURS = {"unordered_set": "tab:blue", "reinforce": "tab:orange"}
PANELS = {
    ("train", "reward"): "Mean reward in training",
    ("valid", "solved"): "Share of prompts solved, greedy",
    ("train", "duplicates"): "Share of duplicate completions",
    ("train", "no_signal"): "Share of groups without signal",
    ("train", "effective_sample_size"): "Effective sample size of a group",
    ("train", "mass_covered"): "Probability mass covered by a group",
}


@dataclass(frozen=True, kw_only=True)
class LanguageModelFigures:
    """Draw what runs of swor lm logged: a thin line per run, a thick one for their mean.

    Attributes:
        runs: folders of runs of swor lm, of the same number of steps.
        out: folder to write to; by default a new one in runs/.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    out: Path | None = None


class Point(NamedTuple):
    """One number of one run."""

    estimator: str
    seed: int
    split: str
    metric: str
    step: int
    value: float


def lm_figures(settings: LanguageModelFigures) -> Path:
    """Draw, and return the folder with curves.csv and curves.png.

    Args:
        settings: what to draw.
    """
    if not settings.runs:
        raise UserError("no runs were given; expected folders of runs of swor lm.")
    points = [point for run in settings.runs for point in read_points(run)]
    folder = create(settings.out or unused(Path("runs"), "lm-figures"))
    folder.write_settings(settings)
    folder.write_csv("curves.csv", [point._asdict() for point in points])
    with folder.replacing("curves.png") as draft:
        figure(points).savefig(draft, dpi=150)
    print(f"The figures are in {folder.path}")
    return folder.path


def read_points(run: Path) -> list[Point]:
    """All that a run logged and a panel shows."""
    trained = read_settings(LanguageModel, run, out=None)
    return [
        Point(trained.estimator, trained.seed, split, metric, record["step"], record[metric])
        for split, metric in PANELS
        for record in read_records(run, split)
        if metric in record
    ]


def figure(points: Sequence[Point]) -> Figure:
    """A panel for each metric."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(12, 6.5), layout="constrained")
    axes = drawing.subplots(2, 3).flat
    for axis, ((split, metric), title) in zip(axes, PANELS.items(), strict=True):
        chosen = [p for p in points if (p.split, p.metric) == (split, metric)]
        draw(axis, chosen)
        axis.set(title=title, xlabel="steps")
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=2)
    return drawing


def draw(axis: Axes, points: Sequence[Point]) -> None:
    """The runs of every estimator, and their mean."""
    for estimator in sorted({p.estimator for p in points}, reverse=True):
        by_seed: dict[int, list[Point]] = defaultdict(list)
        by_step: dict[int, list[float]] = defaultdict(list)
        for p in points:
            if p.estimator == estimator:
                by_seed[p.seed].append(p)
                by_step[p.step].append(p.value)
        colour = COLOURS[estimator]
        for run in by_seed.values():
            axis.plot(
                [p.step for p in run], [p.value for p in run], color=colour, lw=0.6, alpha=0.5
            )
        means = {step: mean(values) for step, values in sorted(by_step.items())}
        axis.plot(list(means), list(means.values()), color=colour, lw=2, label=LABELS[estimator])
