"""What a trained VAE sees and dreams: images, their reconstructions, and samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swor.experiments.checkpoint import Checkpoint, part_of
from swor.experiments.data import load
from swor.experiments.errors import UserError
from swor.experiments.resume import read_settings
from swor.experiments.task import seeded
from swor.experiments.vae.model import CategoricalVAE
from swor.experiments.vae.published import label
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.task import build

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@torch.no_grad()
def picture(run: Path, columns: int, data_dir: Path | None) -> Figure:
    """Validation images, their reconstructions from the likeliest z, and samples of the prior."""
    from matplotlib.figure import Figure

    settings = read_settings(VAE, run, out=None)
    images = load(settings.data, data_dir or settings.data_dir)
    if not 1 <= columns <= len(images.valid):
        raise UserError(
            f"columns is {columns}; expected from 1 to {len(images.valid)} images, such as 12."
        )
    vae = build(settings, images.train.shape[-1])
    weights = Checkpoint(run / "checkpoint.pt").load()["model"]
    vae.load_state_dict(part_of(weights, "vae."))
    seen = images.valid[:columns].float()
    bands = {
        "images": seen,
        "reconstructions": reconstruct(vae, seen),
        "samples": dream(vae, 2 * columns, settings.seed),
    }
    figure = Figure(figsize=(0.75 * columns, 3.9), layout="constrained")
    panels = figure.subplots(3, 1, height_ratios=[len(b) for b in bands.values()])
    for ax, (title, band) in zip(panels, bands.items(), strict=True):
        ax.imshow(tile(band, columns, images.shape).numpy(), cmap="gray_r", vmin=0.0, vmax=1.0)
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_axis_off()
    domain = f"${settings.categories}^{{{settings.dims}}}$"
    title = f"{label(settings.estimator)}, k = {settings.samples}, {settings.data}, {domain}"
    figure.suptitle(title, fontsize=10)
    return figure


def reconstruct(vae: CategoricalVAE, x: Tensor) -> Tensor:
    """The pixel probabilities of the likeliest z of images (records, pixels)."""
    mode = vae.posterior(x).base_dist.logits.argmax(-1)
    z = torch.nn.functional.one_hot(mode, vae.c).to(x.dtype)
    return vae.pixel_logits(z.unsqueeze(-3)).squeeze(-2).sigmoid()


def dream(vae: CategoricalVAE, records: int, seed: int) -> Tensor:
    """The pixel probabilities of samples of the prior, (records, pixels)."""
    index = torch.randint(vae.c, (records, vae.n), generator=seeded(seed, "samples"))
    z = torch.nn.functional.one_hot(index, vae.c).float()
    return vae.pixel_logits(z.unsqueeze(-3)).squeeze(-2).sigmoid()


def tile(images: Tensor, columns: int, shape: tuple[int, int]) -> Tensor:
    """Images (records, pixels) side by side in rows, one pixel apart.

    >>> tile(torch.ones(4, 6), 2, (2, 3)).shape
    torch.Size([5, 7])
    """
    grid = torch.nn.functional.pad(images.unflatten(-1, shape), (0, 1, 0, 1))
    rows: Tensor = grid.unflatten(0, (-1, columns)).permute(0, 2, 1, 3)
    return rows.flatten(2).flatten(0, 1)[:-1, :-1]
