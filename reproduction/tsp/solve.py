"""The command ``tsp-solve``: tours of given instances by a trained model, greedy, sampled, by beam search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import torch
import tyro
from matplotlib.figure import Figure
from torch import Tensor

import swor
from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import panels
from reproduction.harness.errors import UserError, check_at_least
from reproduction.harness.folder import open_folder, require_new
from reproduction.harness.tables import markdown
from reproduction.harness.task import seeded
from reproduction.tsp.model import AttentionModel, load_attention_model
from reproduction.tsp.optimal import optimal_lengths
from reproduction.tsp.policy import TourPolicy
from reproduction.tsp.problem import read_instances, tour_length

AT_ONCE = 4096  # tours that are searched for at the same time
SHOWN = 4  # instances that are drawn


@dataclass(frozen=True, kw_only=True)
class TSPSolve:
    """Find tours by greedy decoding, samples without replacement and beam search, and draw them.

    Attributes:
        model: the model.safetensors of a run of python -m reproduction tsp.
        instances: .npz with an array 'instances' (n, nodes, 2).
        k: number of tours of which the shortest is taken.
        seed: seed of the samples.
        optimal: also find the lengths of the shortest tours, exactly.
        out: folder to write to; by default a new one in runs/.
    """

    model: tyro.conf.Positional[Path]
    instances: tyro.conf.Positional[Path]
    k: int = 16
    seed: int = 0
    optimal: bool = False
    out: Path | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "k")


def tsp_solve(settings: TSPSolve) -> Path:
    """Write tours.csv, growth.csv, summary.md and drawings to a folder, and return it."""
    if settings.out is not None:
        require_new(settings.out)
    model, instances = load_attention_model(settings.model), read_instances(settings.instances)
    try:
        found = search(model, instances, settings.k, settings.seed)
    except ValueError as error:  # such as more tours than there are
        raise UserError(str(error)) from error
    optimal = optimal_lengths(instances, progress=True) if settings.optimal else None
    folder = open_folder(settings, "tsp-solve", out=settings.out)
    folder.write_csv("tours.csv", tour_rows(found, optimal))
    growth = growth_rows(model, instances, found, optimal)
    folder.write_csv("growth.csv", growth)
    folder.write_figure("growth.png", growth_figure(pd.DataFrame(growth)))
    best = {method: tours.best() for method, tours in found.items()}
    folder.write_figure("tours.png", tours_figure(instances, best))
    summary = summary_table(found, optimal)
    folder.write_text("summary.md", summary)
    print(summary)
    print(f"The tours are in {folder.path}")
    return folder.path


@dataclass(frozen=True)
class Tours:
    """k tours of every instance, (n, k, nodes), and their lengths, (n, k)."""

    value: Tensor
    length: Tensor

    def best(self) -> tuple[Tensor, Tensor]:
        """Return the shortest tour of each instance, (n, nodes), and its length, (n,)."""
        length, index = self.length.min(-1)
        return self.value[torch.arange(len(index)), index], length

    def growth(self, ks: list[int]) -> list[float]:
        """Return the mean length of the best of the first k tours, for every k."""
        return [float(self.length[:, :k].amin(-1).mean()) for k in ks]


def search(model: AttentionModel, instances: Tensor, k: int, seed: int) -> dict[str, Tours]:
    """Find tours of every instance by every method."""
    noise = seeded(seed, "tsp-solve")
    methods: dict[str, tuple[int, Callable[..., swor.Sample]]] = {
        "greedy": (1, swor.beam_search),
        "distinct": (k, partial(swor.stochastic_beam_search, generator=noise)),
        "sampling": (k, partial(swor.ancestral_sample, generator=noise)),
        "beam_search": (k, swor.beam_search),
    }
    return {name: decode(model, instances, *method) for name, method in methods.items()}


@torch.no_grad()
def decode(
    model: Callable[[Tensor], TourPolicy], x: Tensor, k: int, draw: Callable[..., swor.Sample]
) -> Tours:
    """Find k tours of every instance, for a part of the instances at a time."""
    value = torch.cat([draw(model(part), k=k).value for part in x.split(max(AT_ONCE // k, 1))])
    return Tours(value, tour_length(x, value))


def growth_rows(
    model: AttentionModel, instances: Tensor, found: dict[str, Tours], optimal: Tensor | None
) -> list[dict[str, object]]:
    """Tabulate the mean length of the best of k tours as k doubles.

    The first k of K samples are k samples, with and without replacement. The first k of K beams are
    not a search with k beams, so that search is repeated for every k.
    """
    most = found["beam_search"].length.shape[-1]
    ks = sorted({2**i for i in range(most.bit_length())} | {most})
    best = {name: found[name].growth(ks) for name in ("distinct", "sampling")}
    beams = [decode(model, instances, k, swor.beam_search) for k in ks]
    best["beam_search"] = [tours.growth([k])[0] for tours, k in zip(beams, ks, strict=True)]
    if optimal is not None:
        best["optimal"] = [float(optimal.mean())] * len(ks)
    return [
        {"method": name, "k": k, "length": length}
        for name, lengths in best.items()
        for k, length in zip(ks, lengths, strict=True)
    ]


def summary_table(found: dict[str, Tours], optimal: Tensor | None) -> str:
    """Return, in Markdown, the mean length of the best tours of every method, and its mean gap."""
    rows: list[list[object]] = []
    for method, tours in found.items():
        _, length = tours.best()
        gap = "" if optimal is None else f"{100 * float((length / optimal - 1).mean()):.2f}"
        label, k = appearance(method).label, tours.length.shape[-1]
        rows.append([label, k, f"{float(length.mean()):.4f}", gap])
    if optimal is not None:
        rows.append([appearance("optimal").label, "", f"{float(optimal.mean()):.4f}", "0.00"])
    return markdown(["method", "tours", "mean length of the best", "mean gap (%)"], rows)


def tour_rows(found: dict[str, Tours], optimal: Tensor | None) -> list[dict[str, object]]:
    """Tabulate the best tour of every instance and method, and its length."""
    rows: list[dict[str, object]] = []
    for method, tours in found.items():
        for i, (tour, length) in enumerate(zip(*tours.best(), strict=True)):
            row = {"instance": i, "method": method, "length": float(length)}
            best = {} if optimal is None else {"optimal": float(optimal[i])}
            rows.append(row | best | {"tour": " ".join(map(str, tour.tolist()))})
    return rows


def growth_figure(growth: pd.DataFrame) -> Figure:
    """Plot the mean length of the best of k tours against k, from ``growth.csv``."""
    figure, axes = panels(5.0, 3.6)
    ax, ks = axes[0, 0], sorted(growth["k"].unique())
    for method in in_order(growth["method"]):
        rows, look = growth[growth["method"] == method], appearance(method)
        style = look.line_style | look.point_style
        ax.plot(rows["k"], rows["length"], label=look.label, **style)
    ax.set_xscale("log", base=2)
    ax.set_xticks(ks, [str(k) for k in ks])
    ax.set(xlabel="number of tours k", ylabel="mean length of the best of k tours")
    ax.legend(frameon=False)
    return figure


def tours_figure(instances: Tensor, best: Mapping[str, tuple[Tensor, Tensor]]) -> Figure:
    """Draw the best tours of the first instances, one column for each method."""
    count = min(SHOWN, len(instances))
    figure, axes = panels(2.4 * len(best), 2.5 * count, count, len(best))
    for column, (method, (tours, length)) in zip(axes.T, best.items(), strict=True):
        look = appearance(method)
        for row, ax in enumerate(column):
            x, y = instances[row, tours[row].tolist() + tours[row, :1].tolist()].T
            ax.plot(x, y, "-", color=look.colour, linewidth=1.5)
            ax.plot(x, y, "o", color="black", markersize=3)
            title = f"{look.label}\n" if row == 0 else ""
            ax.set_title(f"{title}{float(length[row]):.3f}", fontsize=9)
            ax.set(aspect="equal", xticks=[], yticks=[])
    return figure
