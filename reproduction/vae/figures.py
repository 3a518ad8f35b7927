"""Figures of the VAE: training curves, the variance during training, and images of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reproduction.harness.appearance import appearance
from reproduction.harness.errors import UserError
from reproduction.harness.images import load
from reproduction.harness.models import MODEL, load_model
from reproduction.harness.settings import read_settings
from reproduction.harness.task import seeded
from reproduction.vae.curves import Curve, Group, common_details, grouped, spread
from reproduction.vae.model import CategoricalVAE
from reproduction.vae.settings import VAESettings
from reproduction.vae.task import make_vae
from reproduction.vae.variance import Measurement, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curves_figure(curves: Sequence[Curve]) -> Figure:
    """Plot curves, with a column of panels for each domain: training above, validation below."""
    from matplotlib.figure import Figure

    domains = sorted({curve.settings.domain for curve in curves})
    entries = max(len(grouped([c for c in curves if c.settings.domain == d])) for d in domains)
    size = (6.4 * len(domains), 8.4 + 0.17 * entries)  # both splits are counted
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2, len(domains), squeeze=False)
    for column, domain in enumerate(domains):
        for ax, split in zip(panels[:, column], ("train", "valid"), strict=True):
            shown = [c for c in curves if (c.settings.domain, c.split) == (domain, split)]
            groups = grouped(shown)
            _curves_panel(ax, groups)
            name = "training" if split == "train" else "validation"
            title = [rf"{domain.data}, ${domain.categories}^{{{domain.dims}}}$", name]
            ax.set_title(", ".join([*title, *common_details(groups)]))
    for ax in panels[-1]:
        ax.set_xlabel("epoch")
    for ax in panels[:, 0]:
        ax.set_ylabel("−ELBO (nats)")
    return figure


def _curves_panel(ax: Axes, groups: Sequence[Group]) -> None:
    """Plot thin raw and thick smoothed lines, with a legend in the order of the lowest values."""
    common = common_details(groups)
    for group in groups:
        look = appearance(group.settings.estimator)
        own = [detail for detail in group.details if detail not in common]
        name = f"{spread(group.lowest)}  {', '.join([group.short_name, *own])}"
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
    # The first steps are far above the rest and would hide it.
    curves = [curve for group in groups for curve in group.curves]
    late = [value for c in curves for value in c.smooth[len(c.smooth) // 5 :]]
    low, high = min(late), max(late)
    ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low))
    ax.grid(alpha=0.25)
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0.0, -0.13))


def variance_figure(
    rows: Sequence[Row], measured: Sequence[Measurement], trained_with: str
) -> Figure:
    """Plot the encoder's log-variance during training, with a legend in the order of the last values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    ax = figure.subplots()
    curves = []
    for row in rows:
        key = (row.estimator, row.paper_k, "encoder")
        mine = [m for m in measured if (m.estimator, m.k, m.part) == key]
        curves.append((mine[-1].log_variance, row, sorted(mine)))
    for last, row, mine in sorted(curves, reverse=True):
        look = appearance(row.estimator)
        # A model may leave nothing to chance: then there is no point, and the line is broken.
        heights = [m.log_variance if m.log_variance > -math.inf else math.nan for m in mine]
        ax.errorbar(
            [m.epoch for m in mine],
            heights,
            [2.0 * m.standard_error for m in mine],
            label=f"{look.label}, k = {row.paper_k}: {last:.2f}",
            color=look.colour,
            linestyle=look.line,
            marker="o",
            markersize=3,
            linewidth=1.4,
        )
    ax.set_xlabel(f"epochs of training with {trained_with}")
    ax.set_ylabel("log-variance of the encoder's gradient")
    ax.grid(alpha=0.25)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


@torch.no_grad()
def picture(run: Path, columns: int, data_dir: Path | None) -> Figure:
    """Draw validation images, their reconstructions from the likeliest z, and samples from the prior."""
    from matplotlib.figure import Figure

    settings = read_settings(VAESettings, run)
    images = load(settings.data, data_dir or settings.data_dir)
    if not 1 <= columns <= len(images.valid):
        raise UserError(
            f"columns is {columns}; expected from 1 to {len(images.valid)} images, such as 12."
        )
    vae = make_vae(settings, images.train.shape[-1])
    load_model(run / MODEL, vae, part="vae")
    bands = {
        "images": images.valid[:columns].float(),
        "reconstructions": reconstructions(vae, images.valid[:columns].float()),
        "samples": samples(vae, 2 * columns, settings.seed),
    }
    figure = Figure(figsize=(0.75 * columns, 3.9), layout="constrained")
    panels = figure.subplots(3, 1, height_ratios=[len(b) for b in bands.values()])
    for ax, (title, band) in zip(panels, bands.items(), strict=True):
        ax.imshow(tile(band, columns, images.shape).numpy(), cmap="gray_r", vmin=0.0, vmax=1.0)
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_axis_off()
    domain = f"${settings.categories}^{{{settings.dims}}}$"
    label = appearance(settings.estimator).label
    figure.suptitle(f"{label}, k = {settings.samples}, {settings.data}, {domain}", fontsize=10)
    return figure


def reconstructions(vae: CategoricalVAE, x: Tensor) -> Tensor:
    """Return the pixel probabilities of the likeliest z of images (records, pixels)."""
    return _pixels(vae, vae.posterior(x).base_dist.logits.argmax(-1))


def samples(vae: CategoricalVAE, records: int, seed: int) -> Tensor:
    """Return the pixel probabilities of samples from the prior, (records, pixels)."""
    return _pixels(vae, torch.randint(vae.c, (records, vae.n), generator=seeded(seed, "samples")))


def _pixels(vae: CategoricalVAE, index: Tensor) -> Tensor:
    z = torch.nn.functional.one_hot(index, vae.c).float()
    return vae.pixel_logits(z.unsqueeze(-3)).squeeze(-2).sigmoid()


def tile(images: Tensor, columns: int, shape: tuple[int, int]) -> Tensor:
    """Place images (records, pixels) side by side in rows, one pixel apart.

    >>> tile(torch.ones(4, 6), 2, (2, 3)).shape
    torch.Size([5, 7])
    """
    grid = torch.nn.functional.pad(images.unflatten(-1, shape), (0, 1, 0, 1))
    rows: Tensor = grid.unflatten(0, (-1, columns)).permute(0, 2, 1, 3)
    return rows.flatten(2).flatten(0, 1)[:-1, :-1]
