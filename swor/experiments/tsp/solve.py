"""``swor tsp-solve``: tours of given instances, by a trained model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import tyro
from torch import Tensor

import swor
from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder, create, unused
from swor.experiments.task import seeded
from swor.experiments.tsp.drawing import draw_growth, draw_tours
from swor.experiments.tsp.files import read_instances
from swor.experiments.tsp.model import AttentionModel, load_model
from swor.experiments.tsp.policy import TourPolicy
from swor.experiments.tsp.problem import tour_length
from swor.experiments.tsp.solver import optimal_lengths

AT_ONCE = 4096  # tours that are searched for at the same time


@dataclass(frozen=True, kw_only=True)
class TspSolve:
    """Find tours by greedy decoding, samples without replacement and beam search, and draw them."""

    model: tyro.conf.Positional[Path]
    """the model.safetensors of a run of `swor tsp`"""
    instances: tyro.conf.Positional[Path]
    """.npz with an array 'instances' (n, nodes, 2), or .csv with columns instance, x, y"""
    k: int = 16
    """the number of tours of which the shortest is taken"""
    seed: int = 0
    """of the samples"""
    optimal: bool = False
    """also find the lengths of the shortest tours, exactly"""
    out: Path | None = None
    """the folder to write to; a new one in runs/"""


@dataclass(frozen=True)
class Tours:
    """k tours of every instance, (n, k, nodes), and their lengths, (n, k)."""

    value: Tensor
    length: Tensor

    def best(self) -> tuple[Tensor, Tensor]:
        """The shortest of each instance, (n, nodes), and its length, (n,)."""
        length, index = self.length.min(-1)
        return self.value[torch.arange(len(index)), index], length

    def growth(self, ks: list[int]) -> list[float]:
        """The mean length of the best of the first k, for every k."""
        return [float(self.length[:, :k].amin(-1).mean()) for k in ks]


def tsp_solve(command: TspSolve) -> Path:
    """Write tours.csv, growth.csv and drawings to a folder, and return it.

    Args:
        command: what to do.
    """
    model, instances = load_model(command.model), read_instances(command.instances)
    try:
        found = search(model, instances, command.k, command.seed)
    except ValueError as error:  # such as more tours than there are
        raise UserError(str(error)) from error
    optimal = optimal_lengths(instances, progress=True) if command.optimal else None
    folder = create(command.out or unused(Path("runs"), "tsp-solve"))
    folder.write_settings(command)
    folder.write_csv("tours.csv", tour_rows(found, optimal))
    growth = growth_rows(model, instances, found)
    folder.write_csv("growth.csv", growth)
    draw_growth(folder, growth, None if optimal is None else float(optimal.mean()))
    draw_tours(folder, instances, {name: tours.best() for name, tours in found.items()})
    report(found, optimal, folder)
    return folder.path


def search(model: AttentionModel, instances: Tensor, k: int, seed: int) -> dict[str, Tours]:
    """Tours of every instance by every method."""
    noise = seeded(seed, "tsp-solve")
    return {
        "greedy": decode(model, instances, 1, partial(swor.beam_search, k=1)),
        "without replacement": decode(
            model, instances, k, partial(swor.stochastic_beam_search, k=k, generator=noise)
        ),
        "independent": decode(
            model, instances, k, partial(swor.ancestral_sample, k=k, generator=noise)
        ),
        "beam search": decode(model, instances, k, partial(swor.beam_search, k=k)),
    }


@torch.no_grad()
def decode(
    model: AttentionModel, instances: Tensor, k: int, draw: Callable[[TourPolicy], swor.Sample]
) -> Tours:
    """K tours of every instance, a part of the instances at a time."""
    parts = instances.split(max(AT_ONCE // max(k, 1), 1))
    value = torch.cat([draw(model(part)).value for part in parts])
    return Tours(value, tour_length(instances, value))


def growth_rows(
    model: AttentionModel, instances: Tensor, found: dict[str, Tours]
) -> list[dict[str, object]]:
    """The mean length of the best of k tours as k doubles.

    The first k of K samples are k samples, with and without replacement. The first k of K beams are
    not a search with k beams, so those are searched for anew.
    """
    most = found["beam search"].length.shape[-1]
    ks = sorted({2**i for i in range(most.bit_length())} | {most})
    best = {name: found[name].growth(ks) for name in ("without replacement", "independent")}
    best["beam search"] = [
        decode(model, instances, k, partial(swor.beam_search, k=k)).growth([k])[0] for k in ks
    ]
    return [
        {"method": name, "k": k, "length": length}
        for name, lengths in best.items()
        for k, length in zip(ks, lengths, strict=True)
    ]


def tour_rows(found: dict[str, Tours], optimal: Tensor | None) -> list[dict[str, object]]:
    """A row per instance and method: the best tour and its length."""
    rows: list[dict[str, object]] = []
    for method, tours in found.items():
        for i, (tour, length) in enumerate(zip(*tours.best(), strict=True)):
            row = {"instance": i, "method": method, "length": float(length)}
            if optimal is not None:
                row["optimal"] = float(optimal[i])
            rows.append(row | {"tour": " ".join(map(str, tour.tolist()))})
    return rows


def report(found: dict[str, Tours], optimal: Tensor | None, folder: RunFolder) -> None:
    """Print the mean length of every method."""
    for method, tours in found.items():
        length = tours.best()[1]
        gap = "" if optimal is None else f"  gap {100 * float((length / optimal - 1).mean()):.2f} %"
        print(
            f"{method:<20} k = {tours.length.shape[-1]:<4} length {float(length.mean()):.4f}{gap}"
        )
    print(f"The tours are in {folder.path}")
