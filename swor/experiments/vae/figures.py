"""``swor vae-figures``: training curves, reconstructions and samples of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from swor.experiments.errors import UserError
from swor.experiments.folder import create, unused
from swor.experiments.vae import elbo_table
from swor.experiments.vae.curves import Curve, grouped, names, read_curve, rows, spread
from swor.experiments.vae.pictures import picture
from swor.experiments.vae.published import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Draw the training and validation curves of runs, and what their models see and dream.

    Runs that differ in their seed alone share an entry of the legend and a row of the table.

    Attributes:
        runs: folders of runs of swor vae, of any data and number of dimensions.
        smoothing: number of neighbouring points that the smoothed curves average.
        columns: images per row of a picture.
        data_dir: folder of the data files; by default that of the run, SWOR_DATA, or a download.
        out: folder to write to; by default a new one in runs/.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    smoothing: int = 5
    columns: int = 12
    data_dir: Path | None = None
    out: Path | None = None


def vae_figures(settings: Figures) -> Path:
    """Draw, and return the folder with curves.csv, .md and .png, and a picture per run.

    Args:
        settings: what to draw.
    """
    if not settings.runs:
        raise UserError("no runs were given; expected folders of runs of swor vae.")
    if settings.smoothing < 1:
        raise UserError(
            f"smoothing is {settings.smoothing}; expected at least 1 (none), such as 5."
        )
    runs = dict(zip(names(settings.runs), settings.runs, strict=True))
    curves = [
        read_curve(run, name, split, settings.smoothing)
        for name, run in runs.items()
        for split in ("train", "valid")
    ]
    pictures = {n: picture(run, settings.columns, settings.data_dir) for n, run in runs.items()}
    folder = create(settings.out or unused(Path("runs"), "vae-figures"))
    folder.write_settings(settings)
    folder.write_csv("curves.csv", rows(curves))
    folder.write_text("curves.md", elbo_table.markdown(curves))
    with folder.replacing("curves.png") as draft:
        curves_figure(curves).savefig(draft, dpi=150)
    for name, figure in pictures.items():
        with folder.replacing(f"images-{name}.png") as draft:
            figure.savefig(draft, dpi=150)
    print(f"The figures are in {folder.path}")
    return folder.path


def curves_figure(curves: Sequence[Curve]) -> Figure:
    """A column of panels for each data set and domain: training above, validation below."""
    from matplotlib.figure import Figure

    domains = sorted({curve.settings.domain for curve in curves})
    figure = Figure(figsize=(6.4 * len(domains), 8.4), layout="constrained")
    panels = figure.subplots(2, len(domains), squeeze=False)
    for column, domain in enumerate(domains):
        for ax, split in zip(panels[:, column], ("train", "valid"), strict=True):
            _panel(ax, [c for c in curves if (c.settings.domain, c.split) == (domain, split)])
            name = "training" if split == "train" else "validation"
            ax.set_title(rf"{domain.data}, ${domain.categories}^{{{domain.dims}}}$, {name}")
    for ax in panels[-1]:
        ax.set_xlabel("epoch")
    for ax in panels[:, 0]:
        ax.set_ylabel("−ELBO (nats)")
    return figure


def _panel(ax: Axes, curves: Sequence[Curve]) -> None:
    """Thin raw and thick smoothed lines; the legend is sorted by the lowest smoothed value."""
    for group in grouped(curves):
        look = style(group.settings.estimator)
        name = f"{spread(group.lowest)}  {group.name}"
        for number, curve in enumerate(group.curves):
            ax.plot(curve.epochs, curve.raw, color=look.colour, linewidth=0.6, alpha=0.5)
            ax.plot(
                curve.epochs,
                curve.smooth,
                color=look.colour,
                linestyle=look.line,
                linewidth=1.8 if group.settings.samples < 8 else 3.0,
                label=None if number else name,
            )
    # The first steps are far above all else: leave them out of sight.
    late = [value for c in curves for value in c.smooth[len(c.smooth) // 5 :]]
    low, high = min(late), max(late)
    ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    ax.grid(alpha=0.25)
    ax.legend(fontsize=8)
