"""The race: children never beat their parent, and the threshold has the law of the next."""

from __future__ import annotations

import math

import pytest
import torch
from problems import log_probabilities, seeded
from sampling_laws import DRAWS, WAYS, draw_by

import swor
from swor.samplers._beams import search_beams
from swor.samplers._distinct import draw_one_by_one
from swor.samplers._race import perturb_children
from swor.samplers.products import fuse


@pytest.mark.parametrize("draw", [*WAYS, "one by one", "beams", "stream of a product", "fused"])
def test_kappa_has_the_law_of_the_next_in_the_race(draw, monkeypatch):
    """E[e^{-kappa}] is the mean time of the (k+1)-th finisher, Σ 1 / remaining mass."""
    log_probs = log_probabilities(3, 3, scale=0.7)
    joint = fuse(log_probs, 3).squeeze(0)
    k = 2
    model = swor.Factorized(log_probs.expand(DRAWS, 3, 3))
    if draw in WAYS:
        draw_by(draw, monkeypatch)
        sample = swor.gumbel_top_k(joint.expand(DRAWS, 27), k, generator=seeded())
        log_p, log_rest, kappa = sample.log_p, sample.log_rest, sample.kappa
    else:
        ways = {
            "one by one": lambda: draw_one_by_one(joint.expand(DRAWS, 27), k, seeded()),
            "beams": lambda: search_beams(model, k, generator=seeded())[0],
            "stream of a product": lambda: model._from_stream(k, seeded()),
            "fused": lambda: model._from_search(k, seeded()),
        }
        _, log_p, log_rest, kappa = ways[draw]()
    t1, t2, t3 = 1.0, -torch.expm1(log_p[:, 0]), log_rest.exp()
    expected = (1 / t1 + 1 / t2 + 1 / t3).mean()
    times = torch.exp(-kappa)
    z = (times.mean() - expected) / (times.std() / math.sqrt(DRAWS))
    assert abs(z) < 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_mass", [0.0, -46.0, -1000.0])
def test_children_have_exactly_their_parents_maximum(dtype, log_mass):
    log_probs = log_probabilities(1000, 30, scale=5.0, dtype=dtype)
    mass = torch.full((1000,), log_mass, dtype=dtype)
    g = mass + torch.randn(1000, generator=seeded(), dtype=dtype)
    children = perturb_children(log_probs, mass, g, seeded(1))
    assert torch.equal(children.amax(-1), g)
    assert not children.isnan().any()
