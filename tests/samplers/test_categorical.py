"""Samplers of a categorical variable."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest
import torch
from problems import chi_square, log_probabilities, seeded
from sampling_laws import DRAWS, WAYS, check_order_and_sets, draw_by, tuples

import swor


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("way", ["race", "stream"])
def test_gumbel_top_k_has_the_law_of_drawing_one_by_one(k, way, monkeypatch):
    draw_by(way, monkeypatch)
    log_probs = log_probabilities(6, scale=2.0)
    sample = swor.gumbel_top_k(log_probs.expand(DRAWS, 6), k, generator=seeded())
    check_order_and_sets(sample.value, dict(enumerate(log_probs)), k)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_the_law_of_the_first_two_of_many_outcomes(k, way, monkeypatch):
    draw_by(way, monkeypatch)
    n = 20 * (k + 1)
    log_probs = log_probabilities(n, scale=2.0)
    sample = swor.gumbel_top_k(log_probs.expand(DRAWS, n), k, generator=seeded())
    for j in range(min(k, 2)):  # the first, and the second given the first
        likeliest = int(log_probs.argmax())
        rows = sample.value if j == 0 else sample.value[sample.value[:, 0] == likeliest]
        rest = log_probs.clone()
        if j:
            rest[likeliest] = -torch.inf
        law = dict(enumerate(rest.softmax(-1).tolist()))
        assert chi_square(Counter(rows[:, j].tolist()), law, len(rows)) > 1e-3


def test_a_stream_that_repeats_itself_is_continued_by_a_race(monkeypatch):
    """Nearly all mass on one outcome: no stream is long enough, and the others race for what follows."""
    draw_by("stream", monkeypatch)
    log_probs = torch.tensor([0.0, -20.0, -21.0, -22.0]).double().log_softmax(-1)
    sample = swor.gumbel_top_k(log_probs.expand(DRAWS, 4), 2, generator=seeded())
    check_order_and_sets(sample.value, dict(enumerate(log_probs)), 2)
    outside = log_probs.scatter(-1, sample.value[0], -torch.inf).logsumexp(-1)
    assert torch.allclose(sample.log_rest[0], outside, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n, k", [(7, 3), (500, 1), (500, 7), (5, 5), (301, 300)])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_selected_makes_up_the_rest(n, k, way, monkeypatch):
    draw_by(way, monkeypatch)
    log_probs = log_probabilities(2, 3, n, scale=3.0)
    sample = swor.gumbel_top_k(log_probs, k, generator=seeded())
    assert sample.value.shape == sample.log_p.shape == (2, 3, k)
    assert (sample.value.sort(-1).values.diff(dim=-1) > 0).all()
    assert torch.equal(sample.log_p, log_probs.gather(-1, sample.value))
    outside = log_probs.scatter(-1, sample.value, -torch.inf).logsumexp(-1)
    assert torch.allclose(sample.log_rest, outside, rtol=0, atol=1e-12)
    assert (sample.kappa == -torch.inf).all() if k == n else sample.kappa.isfinite().all()


def test_outcomes_whose_probabilities_underflow_have_their_law():
    """Two outcomes have all the mass, and float32 has no number for the probabilities of the others."""
    log_probs = torch.tensor([-0.5, 0.5, -200.0, -201.0, -202.0]).log_softmax(-1)
    sample = swor.gumbel_top_k(log_probs.expand(DRAWS, 5), 3, generator=seeded())
    third = Counter(sample.value.amax(-1).tolist())
    law = dict(zip((2, 3, 4), log_probs[2:].softmax(-1).tolist(), strict=True))
    assert chi_square(third, law, DRAWS) > 1e-3
    outside = log_probs.scatter(-1, sample.value[0], -torch.inf).logsumexp(-1)
    torch.testing.assert_close(sample.log_rest[0], outside, rtol=1e-6, atol=0)
    assert (sample.kappa < -100.0).all() and sample.kappa.isfinite().all()


def test_with_replacement_draws_independently():
    log_probs = log_probabilities(4)
    sample = swor.with_replacement(log_probs.expand(DRAWS, 4), 2, generator=seeded())
    law = {
        (i, j): (log_probs[i] + log_probs[j]).exp().item() for i, j in product(range(4), repeat=2)
    }
    assert chi_square(Counter(tuples(sample.value)), law, DRAWS) > 1e-3


@pytest.mark.parametrize("m", [1, 2, 3])
def test_top_k_and_sample_sums_the_likeliest(m):
    log_probs = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05]).double().log()
    sample = swor.top_k_and_sample(log_probs.expand(DRAWS, 5), 3, m=m, generator=seeded())
    top = [1, 3, 2][: 3 - m]
    assert (sample.value[:, : 3 - m] == torch.tensor(top)).all()
    left = log_probs.clone()
    left[top] = -torch.inf
    law = dict(enumerate(left.softmax(-1).tolist()))
    assert chi_square(Counter(sample.value[:, -1].tolist()), law, DRAWS) > 1e-3
    weights = swor.deterministic_sum_and_sample(sample).weight
    expected = torch.cat([log_probs[top].exp(), left.exp().sum().expand(m) / m])
    assert torch.allclose(weights, expected.expand_as(weights), rtol=0, atol=1e-12)


def test_top_k_and_sample_chooses_how_many_to_sum():
    """Of the choices of |C|, the one that minimises the mass per sample (Liu et al. 2019)."""
    log_probs = torch.stack(
        [torch.full((6,), 1 / 6), torch.tensor([0.9, 0.02, 0.02, 0.02, 0.02, 0.02])]
    )
    sample = swor.top_k_and_sample(log_probs.double().log(), 4, m="auto", generator=seeded())
    summed = (sample.log_q == 0).sum(-1)
    for row, count in zip(log_probs.double(), summed, strict=True):
        ordered = row.sort(descending=True).values
        shares = [(1 - ordered[:c].sum()) / (4 - c) for c in range(4)]
        assert shares[count] <= min(shares) + 1e-12
    assert summed.tolist()[1] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_weights_of_top_k_and_sample_are_not_rounded_in_half_precision(dtype):
    log_probs = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05]).log().to(dtype)
    full = log_probs.double().exp()
    sample = swor.top_k_and_sample(log_probs, 3, m=2, generator=seeded())
    left = full.sum() - full[1]
    expected = torch.stack([full[1], left / 2, left / 2]).float()
    weights = swor.deterministic_sum_and_sample(sample).weight
    assert torch.allclose(weights, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("masked", [-1e5, -1e9])
def test_top_k_and_sample_draws_from_what_a_finite_mask_leaves(masked):
    """The masked outcomes are alike, although their log-probabilities cannot be told from their sum."""
    log_probs = torch.tensor([0.0, masked, masked, masked]).log_softmax(-1)
    sample = swor.top_k_and_sample(log_probs.expand(DRAWS, 4), 2, generator=seeded())
    law = dict.fromkeys((1, 2, 3), 1 / 3)
    assert chi_square(Counter(sample.value[:, 1].tolist()), law, DRAWS) > 1e-3


def test_top_k_and_sample_sums_what_the_caller_gives():
    log_probs = log_probabilities(2, 5)
    memory = torch.tensor([[4], [0]])
    sample = swor.top_k_and_sample(log_probs, 3, m=2, summed=memory, generator=seeded())
    assert torch.equal(sample.value[:, :1], memory)
    assert not (sample.value[:, 1:] == memory).any()


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_may_leave_whole_blocks_empty(way, monkeypatch):
    """A thousand outcomes of which two are possible: most blocks of the race have no mass."""
    draw_by(way, monkeypatch)
    log_probs = torch.full((1000,), -torch.inf)
    log_probs[[3, 700]] = math.log(0.5)
    sample = swor.gumbel_top_k(log_probs.expand(50, 1000), 2, generator=seeded())
    assert (sample.value.sort(-1).values == torch.tensor([3, 700])).all()
    assert (sample.log_rest == -torch.inf).all() and (sample.kappa == -torch.inf).all()


@pytest.mark.parametrize("way", ["race", "blocks"])
def test_left_over_samples_have_no_mass_where_values_cannot_be_looked_at(way, monkeypatch):
    for module in ("_checks", "samplers.categorical", "samplers._distinct"):
        monkeypatch.setattr(f"swor.{module}.may_inspect", lambda *_: False)
    draw_by(way, monkeypatch)
    log_probs = torch.full((43,), -torch.inf)
    log_probs[[3, 42]] = torch.tensor([0.25, 0.75]).log()
    sample = swor.gumbel_top_k(log_probs.expand(50, 43), 5, generator=seeded())
    assert torch.equal((sample.log_p > -torch.inf).sum(-1), torch.full((50,), 2))
    assert torch.allclose(sample.log_p.exp().sum(-1), torch.ones(50))


def test_a_sum_that_has_all_the_mass_is_refused():
    with pytest.raises(ValueError, match="the 2 outcomes that are summed have all the probability"):
        swor.top_k_and_sample(torch.tensor([0.5, 0.5, 0.0]).log(), 3)
