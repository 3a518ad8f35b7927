"""Figures of the VAE: training curves, the variance during training, and images of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from reproduction.harness.appearance import appearance
from reproduction.harness.drawing import (
    HIGHEST,
    draw_errors,
    legend_below,
    legend_under,
    nested,
    panels,
)
from reproduction.harness.images import load
from reproduction.harness.models import MODEL, load_model
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import minus
from reproduction.harness.task import seeded
from reproduction.vae.curves import SPLITS, Group, by_domain, common_details, grouped, spread
from reproduction.vae.model import CategoricalVAE
from reproduction.vae.published import PAPER
from reproduction.vae.settings import VAESettings
from reproduction.vae.task import make_vae

COLUMNS = 12  # images of a row


def curves_figure(points: pd.DataFrame, smoothing: int) -> Figure:
    """Plot ``curves.csv``, with a column of panels for each domain: training above, validation below.

    The column ``smoothed`` averages as many points as ``smoothing`` says.
    """
    domains = by_domain(points)
    entries = max(len(grouped(part, split)) for _, part in domains for split in SPLITS)
    figure, axes = panels(1.2 + 5.2 * len(domains), 8.8 + 0.34 * entries, 2, len(domains))
    for column, (domain, part) in zip(axes.T, domains, strict=True):
        for ax, (split, name) in zip(column, SPLITS.items(), strict=True):
            groups = grouped(part, split)
            _curves_panel(ax, groups, smoothing)
            ax.set_title(", ".join([f"{domain.title} outcomes", name, *common_details(groups)]))
            ax.set_xlabel("epoch")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    for ax in axes[:, 0]:
        ax.set_ylabel("−ELBO (nats)")
    return figure


def both_domains_figure(large: pd.DataFrame, small: pd.DataFrame, smoothing: int) -> Figure:
    """Plot the large domain of one comparison beside the small domain of another."""
    parts = [points[points["dims"] == dims] for points, dims in ((small, 2), (large, 20))]
    return curves_figure(pd.concat(parts, ignore_index=True), smoothing)


def _curves_panel(ax: Axes, groups: Sequence[Group], smoothing: int) -> None:
    """Plot thin raw and thick smoothed lines, with a legend in the order of the lowest values.

    Of more than three seeds, the thick line is the mean. Of an estimator with several k, the lines of more
    samples have markers.
    """
    common, late = common_details(groups), []
    by_k = sorted((group.settings for group in groups), key=lambda settings: -settings["k"])
    fewest = {settings["estimator"]: settings["k"] for settings in by_k}
    for group, width in nested(groups):
        look = appearance(group.settings["estimator"])
        own = [detail for detail in group.details if detail not in common]
        label = f"{spread(group.lowest)}  {', '.join([group.short_name, *own])}"
        more = group.settings["k"] > fewest[group.settings["estimator"]]
        style: dict[str, Any] = {"linewidth": width, "zorder": HIGHEST - width} | look.line_style
        style |= look.point_style | {"markevery": 0.1} if more else {}
        thin: dict[str, Any] = {"color": look.colour, "linewidth": 0.6, "alpha": 0.5}
        for curve in group.curves:
            ax.plot(curve["epoch"], curve["negative_elbo"], **thin)
            late += curve["smoothed"].iloc[len(curve) // 5 :].tolist()
        for smooth in group.smoothed:
            ax.plot(smooth.index, smooth, label=label, **style)
            label = "_"  # one entry for all seeds
    # The first steps are far above the rest and would hide it.
    margin = max(late) - min(late)
    ax.set_ylim(min(late) - 0.05 * margin, max(late) + 0.1 * margin)
    raw = all((g.points["smoothed"] == g.points["negative_elbo"]).all() for g in groups)
    lowest = "lowest value by seed, or mean ± half the range"
    legend_under(ax, lowest if raw else f"{lowest}; thick: means of {smoothing} points")


def variance_figure(measured: pd.DataFrame, trained_with: str) -> Figure:
    """Plot the log-variance of the encoder in ``variance.csv``, with a legend in the order of last values."""
    figure, axes = panels(8.0, 5.6)
    ax, curves = axes[0, 0], []
    for name, rows in measured[measured["part"] == "encoder"].groupby("estimator"):
        k = PAPER[name].k if name in PAPER else rows["k"].max()
        curves.append((name, rows[rows["k"] == k].sort_values("epoch")))
    curves.sort(key=lambda curve: -curve[1]["log_variance"].iloc[-1])
    for (name, rows), width in nested(curves):
        look, heights = appearance(name), rows["log_variance"]
        last = minus(f"{heights.iloc[-1]:.2f}")
        label = f"{look.label}, k = {rows['k'].iloc[0]}: {last}"
        # A model may leave nothing to chance: then there is no point, and the line is broken.
        heights = heights.where(heights > -math.inf)
        look = look._replace(label=label)
        draw_errors(ax, rows["epoch"], heights, rows["standard_error"], look, width=width)
    ax.set_xticks(sorted(measured["epoch"].unique()))
    ax.set_xlabel(f"epochs of training with {trained_with}")
    ax.set_ylabel("log-variance of the encoder's gradient")
    legend_below(figure, ax, columns=1, title="log-variance at the last of these epochs")
    return figure


@torch.no_grad()
def images_figure(run: Path, data_dir: Path | None) -> Figure:
    """Draw validation images, their reconstructions from the likeliest z, and samples from the prior."""
    settings = read_settings(VAESettings, run)
    images = load(settings.data, data_dir or settings.data_dir)
    vae = make_vae(settings, images.train.shape[-1])
    load_model(run / MODEL, vae, part="vae")
    shown = images.valid[:COLUMNS].float()
    noise, size = seeded(settings.seed, "samples"), (2 * COLUMNS, vae.n)
    bands = {
        "images": shown,
        "reconstructions": pixels(vae, vae.posterior(shown).base_dist.logits.argmax(-1)),
        "samples": pixels(vae, torch.randint(vae.c, size, generator=noise)),
    }
    figure = Figure(figsize=(0.75 * COLUMNS, 3.6), layout="constrained")
    bands_of = figure.subplots(3, 1, height_ratios=[len(band) for band in bands.values()])
    for ax, (title, band) in zip(bands_of, bands.items(), strict=True):
        ax.imshow(tile(band, COLUMNS, images.shape).numpy(), cmap="gray_r", vmin=0.0, vmax=1.0)
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_axis_off()
    return figure


def pixels(vae: CategoricalVAE, index: Tensor) -> Tensor:
    """Return the pixel probabilities of z, given by its categories (records, n), (records, pixels)."""
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
