"""``swor vae-figures``: training curves, reconstructions and samples of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tyro

from swor.experiments.errors import UserError
from swor.experiments.folder import create, unused
from swor.experiments.records import read_records
from swor.experiments.resume import read_settings
from swor.experiments.vae.pictures import picture
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.tables import label, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Draw the training and validation curves of runs, and what their models see and dream.

    Attributes:
        runs: folders of runs of swor vae, of any data and number of dimensions.
        smoothing: number of neighbouring points that the smoothed curves average.
        columns: images per row of a picture.
        data_dir: folder of the data files; by default SWOR_DATA, or else a download.
        out: folder to write to; by default a new one in runs/.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    smoothing: int = 5
    columns: int = 12
    data_dir: Path | None = None
    out: Path | None = None


class Curve(NamedTuple):
    """The −ELBO of a run on a split, over its epochs."""

    run: str
    settings: VAE
    split: str
    epochs: list[float]
    raw: list[float]
    smooth: list[float]


def vae_figures(settings: Figures) -> Path:
    """Draw, and return the folder with curves.csv, curves.png and a picture per run.

    Args:
        settings: what to draw.
    """
    if not settings.runs:
        raise UserError("no runs were given; expected folders of runs of swor vae.")
    if settings.smoothing < 1:
        raise UserError(
            f"smoothing is {settings.smoothing}; expected at least 1 (none), such as 5."
        )
    curves = [
        read_curve(run, split, settings.smoothing)
        for run in settings.runs
        for split in ("train", "valid")
    ]
    folder = create(settings.out or unused(Path("runs"), "vae-figures"))
    folder.write_settings(settings)
    folder.write_csv("curves.csv", rows(curves))
    with folder.replacing("curves.png") as draft:
        curves_figure(curves).savefig(draft, dpi=150)
    for run in settings.runs:
        with folder.replacing(f"images-{run.name}.png") as draft:
            picture(run, settings.columns, settings.data_dir).savefig(draft, dpi=150)
    print(f"The figures are in {folder.path}")
    return folder.path


def read_curve(run: Path, split: str, smoothing: int) -> Curve:
    """The curve of a run, from its metrics; without the untrained model, which is off the scale."""
    trained = read_settings(VAE, run, out=None)
    valid = [r for r in read_records(run, "valid") if r["epoch"]]
    if not valid:
        raise UserError(f"{run} has no finished epoch; expected at least one. Train it further.")
    per_epoch = valid[0]["step"] / valid[0]["epoch"]
    records = valid if split == "valid" else list(read_records(run, split))
    raw = [float(r["negative_elbo"]) for r in records]
    epochs = [r["step"] / per_epoch for r in records]
    return Curve(run.name, trained, split, epochs, raw, smoothed(raw, smoothing))


def smoothed(values: Sequence[float], window: int) -> list[float]:
    r"""$s_t = \frac{1}{2 h + 1} \sum_{|i - t| \le h} v_i$: the mean of a centred window.

    Towards the ends the window shrinks, so that the curve neither lags nor stops short.

    >>> smoothed([1.0, 3.0, 5.0, 10.0], 3)
    [1.0, 3.0, 6.0, 10.0]
    """
    out = []
    for t in range(len(values)):
        half = min(window // 2, t, len(values) - 1 - t)
        near = values[t - half : t + half + 1]
        out.append(sum(near) / len(near))
    return out


def rows(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """The curves as a table."""
    return [
        {
            "run": curve.run,
            "data": curve.settings.data,
            "dims": curve.settings.dims,
            "estimator": curve.settings.estimator,
            "k": curve.settings.k,
            "split": curve.split,
            "epoch": round(epoch, 4),
            "negative_elbo": raw,
            "smoothed": smooth,
        }
        for curve in curves
        for epoch, raw, smooth in zip(curve.epochs, curve.raw, curve.smooth, strict=True)
    ]


def curves_figure(curves: Sequence[Curve]) -> Figure:
    """A column of panels for each data set and domain: training above, validation below."""
    from matplotlib.figure import Figure

    columns = sorted({(c.settings.data, c.settings.dims, c.settings.categories) for c in curves})
    figure = Figure(figsize=(6.4 * len(columns), 8.4), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False)
    for column, (data, dims, categories) in enumerate(columns):
        for row, split in enumerate(("train", "valid")):
            mine = [
                c
                for c in curves
                if (c.settings.data, c.settings.dims, c.settings.categories, c.split)
                == (data, dims, categories, split)
            ]
            ax = panels[row, column]
            _panel(ax, mine)
            name = "training" if split == "train" else "validation"
            ax.set_title(rf"{data}, ${categories}^{{{dims}}}$, {name}")
    for ax in panels[-1]:
        ax.set_xlabel("epoch")
    for ax in panels[:, 0]:
        ax.set_ylabel("−ELBO (nats)")
    return figure


def _panel(ax: Axes, curves: Sequence[Curve]) -> None:
    """Thin raw and thick smoothed lines; the legend is sorted by the lowest smoothed value."""
    for curve in sorted(curves, key=lambda c: min(c.smooth)):
        look = style(curve.settings.estimator)
        name = f"{min(curve.smooth):.1f}  {label(curve.settings.estimator)}, k = {curve.settings.k}"
        ax.plot(curve.epochs, curve.raw, color=look.colour, linewidth=0.6, alpha=0.5)
        ax.plot(
            curve.epochs,
            curve.smooth,
            color=look.colour,
            linestyle=look.line,
            linewidth=1.8,
            label=name,
        )
    # The first steps are far above all else: leave them out of sight.
    late = [value for c in curves for value in c.smooth[len(c.smooth) // 5 :]]
    low, high = min(late), max(late)
    ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    ax.grid(alpha=0.25)
    ax.legend(fontsize=8)
