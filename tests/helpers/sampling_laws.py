"""The laws of samples without replacement, and tests of frequencies against them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations

import pytest
import torch
from problems import chi_square

import swor

DRAWS = 40_000


WAYS = ("race", "blocks", "stream")


def draw_by(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the samplers of a categorical variable use one of their methods for any number of outcomes."""
    monkeypatch.setattr("swor.samplers._distinct.FEW_OUTCOMES", 0)
    monkeypatch.setattr("swor.samplers._distinct.SPARSE", 0)
    monkeypatch.setattr("swor.samplers._distinct.SELDOM", 1e9 if way == "stream" else 0.0)
    monkeypatch.setattr(
        "swor.samplers._race.LARGEST_WITHOUT_BLOCKS", 1 if way == "blocks" else 10**9
    )


def ordered_law(log_p: dict, k):
    """The probability of every ordered sample of k keys."""
    keys = list(log_p)
    law = {}
    for b in permutations(keys, k):
        values = torch.stack([log_p[key] for key in b]).detach()
        others = [log_p[key].detach() for key in keys if key not in b]
        rest = torch.stack(others).logsumexp(0) if others else torch.tensor(-torch.inf).double()
        law[b] = swor.log_prob_ordered(values, rest).exp().item()
    return law


def tuples(value):
    """Hashable samples from values (draws, k) or (draws, k, n)."""
    if value.dim() == 2:
        return [tuple(row) for row in value.tolist()]
    return [tuple(tuple(x) for x in row) for row in value.tolist()]


def check_order_and_sets(value, log_p: dict, k):
    observed = Counter(tuples(value))
    law = ordered_law(log_p, k)
    assert chi_square(observed, law, len(value)) > 1e-3
    sets = Counter(frozenset(b) for b in tuples(value))
    set_law = {}
    for s in combinations(log_p, k):
        values = torch.stack([log_p[key] for key in s]).detach()
        set_law[frozenset(s)] = swor.log_prob_set(values).exp().item()
    assert chi_square(sets, set_law, len(value)) > 1e-3
