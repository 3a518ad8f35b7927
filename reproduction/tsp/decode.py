"""Tours of given instances by a trained model: greedy, sampled, and by beam search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import swor
from reproduction.harness.appearance import appearance
from reproduction.harness.tables import markdown
from reproduction.harness.task import seeded
from reproduction.tsp.model import AttentionModel
from reproduction.tsp.policy import TourPolicy
from reproduction.tsp.problem import tour_length

AT_ONCE = 4096  # tours that are searched for at the same time


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
