"""Stratified and systematic samples."""

from __future__ import annotations

import pytest
import torch
from proofs import assert_unbiased

import swor
from swor.samplers._inversion import invert


@pytest.mark.parametrize("name", ["stratified", "systematic"])
def test_strata_are_drawn_as_enumerated(name: str) -> None:
    assert_unbiased(swor.ESTIMATORS[name], "bernoullis", 3)
    p = torch.tensor([0.13, 0.0, 0.52, 0.35])
    sampler = swor.stratified_sample if name == "stratified" else swor.systematic_sample
    value = sampler(p.log().expand(1000, 4), 10, generator=torch.Generator().manual_seed(0)).value
    copies = torch.nn.functional.one_hot(value, 4).sum(-2)
    # From 1.3 to 6.5 in strata: four whole ones, and a part of two.
    assert copies[:, 2].unique().tolist() == ([4, 5, 6] if name == "stratified" else [5, 6])
    assert (copies[:, 1] == 0).all()


def test_positions_at_the_edges_of_outcomes_are_possible_outcomes() -> None:
    p = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    positions = torch.tensor([1e-300, 0.49, 0.5, 1.0], dtype=torch.float64)
    assert invert(p, positions).tolist() == [1, 1, 1, 3]
