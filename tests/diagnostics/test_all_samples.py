"""All samples of a scheme, and their probabilities."""

from __future__ import annotations

import pytest
import torch
from five_outcomes import logits

from swor.diagnostics.all_samples import all_samples, threshold_nodes
from swor.types import Scheme

WITHOUT, WITH, TOP = Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT, Scheme.TOP_K_AND_SAMPLE


@pytest.mark.parametrize("scheme", [WITH, WITHOUT, TOP])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_probabilities_of_all_samples_sum_to_one(scheme: Scheme, ordered: bool, k: int) -> None:
    drawn = all_samples(logits().detach(), k, scheme, ordered=ordered)
    assert float(drawn.probability.sum()) == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("k", [10, 12, 20])
def test_the_orders_of_many_independent_draws_are_counted_exactly(k: int) -> None:
    log_probs = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    drawn = all_samples(log_probs, k, WITH, ordered=False)
    assert float(drawn.probability.sum()) == pytest.approx(1.0, abs=1e-13)


def test_impossible_outcomes_are_not_drawn() -> None:
    log_probs = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64).log()
    for scheme in (WITH, WITHOUT, TOP):
        drawn = all_samples(log_probs, 2, scheme)
        assert not (drawn.sample.value == 1).any()
        assert float(drawn.probability.sum()) == pytest.approx(1.0, abs=1e-13)


def test_beams_have_no_distribution() -> None:
    with pytest.raises(ValueError, match="not random"):
        all_samples(logits().detach(), 2, Scheme.BEAM_SEARCH)


def test_thresholds_integrate_to_the_set_probability() -> None:
    log_p = logits().detach()[:2].unsqueeze(0)
    log_rest = torch.tensor([0.35], dtype=torch.float64).log()
    x, share = threshold_nodes(log_p, log_rest)
    torch.testing.assert_close(share.sum(-1), torch.ones(1).double())
    mean_t = (share * x.exp()).sum()  # of min over the rest, given the two came first
    p1, p2, rest = 0.4, 0.25, 0.35
    second = 1 / rest - rest / (rest + p1) ** 2 - rest / (rest + p2) ** 2 + rest
    first = 1 - rest / (rest + p1) - rest / (rest + p2) + rest
    assert float(mean_t) == pytest.approx(second / first, rel=1e-12)
