"""Elements of a batch with fewer than k outcomes: an error, or a choice to draw them whole."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from problems import chi_square, log_probabilities, seeded
from sampling_laws import draw_by, ordered_law, tuples
from torch.distributions import Bernoulli, Categorical, Independent, OneHotCategorical
from two_level_sequences import two_levels

import swor

DRAWS = 20_000


def assert_drawn_whole(sample: swor.Sample, possible: int) -> None:
    """The outcomes of an element come first, then places that are left over."""
    assert (sample.log_p[..., :possible] > -torch.inf).all()
    assert (sample.log_p[..., possible:] == -torch.inf).all()
    places = sample.value.movedim(sample.log_p.dim() - 1, 0)[possible:]
    assert (places == 0).all()
    assert (sample.log_rest == -torch.inf).all()
    if sample.kappa is not None:
        assert (sample.kappa == -torch.inf).all()


@pytest.mark.parametrize("way", ["race", "blocks", "stream"])
def test_the_law_of_a_mixed_batch(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_by(way, monkeypatch)
    logits = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.0, 1.0, -1.0, 0.5, 0.2], [0.3, 0.0, 1.0, 0.0, 0.0]])
    shift[1, [1, 3, 4]] = -torch.inf  # two outcomes are possible
    log_probs = (logits + shift).log_softmax(-1)
    with pytest.raises(ValueError, match="allow_fewer=True"):
        swor.gumbel_top_k(log_probs, 3)
    many = log_probs.expand(DRAWS, 2, 5)
    sample = swor.gumbel_top_k(many, 3, allow_fewer=True, generator=seeded())
    full, short = dict(enumerate(log_probs[0])), {i: log_probs[1, i] for i in (0, 2)}
    law = ordered_law(full, 3)
    assert chi_square(Counter(tuples(sample.value[:, 0])), law, DRAWS) > 1e-3
    law = ordered_law(short, 2)
    assert chi_square(Counter(tuples(sample.value[:, 1, :2])), law, DRAWS) > 1e-3
    row = swor.Sample(
        sample.value[:, 1],
        sample.log_p[:, 1],
        sample.log_rest[:, 1],
        sample.kappa[:, 1],
        scheme=sample.scheme,
    )
    assert_drawn_whole(row, 2)
    swor.unordered_set(sample).loss(sample.value.double()).mean().backward()
    assert logits.grad.isfinite().all()


def test_k_may_exceed_the_number_of_outcomes() -> None:
    log_probs = log_probabilities(4, 3)
    with pytest.raises(ValueError, match=r"only 3 outcomes.*allow_fewer=True"):
        swor.gumbel_top_k(log_probs, 5)
    sample = swor.gumbel_top_k(log_probs, 5, allow_fewer=True)
    assert sample.value.shape == (4, 5)
    assert_drawn_whole(sample, 3)
    exact = (log_probs.exp() * torch.arange(3)).sum(-1)
    found = swor.unordered_set(sample).mean(sample.value.double())
    torch.testing.assert_close(found, exact)


def test_compiled_code_draws_an_element_whole() -> None:
    log_probs = torch.tensor([0.25, 0.75]).log().repeat(8, 1)
    log_probs = torch.cat([log_probs, torch.full((8, 300), -torch.inf)], dim=-1)

    def draw(log_probs):
        sample = swor.gumbel_top_k(log_probs, 4, allow_fewer=True)
        return sample.value, sample.log_p, sample.log_rest, sample.kappa

    found = torch.compile(draw, fullgraph=True, backend="aot_eager")(log_probs)
    assert_drawn_whole(swor.Sample(*found, scheme="without_replacement"), 2)


@pytest.mark.parametrize(
    "dist, possible",
    [
        (Categorical(probs=torch.tensor([0.5, 0.5, 0.0, 0.0])), 2),
        (OneHotCategorical(logits=torch.tensor([0.0, 1.0])), 2),
        (Independent(Bernoulli(probs=torch.tensor([0.5, 1.0, 0.0])), 1), 2),
        (Independent(Bernoulli(probs=torch.tensor([0.5, 0.2] + [1.0] * 18)), 1), 4),  # a search
    ],
)
def test_distributions(dist, possible: int) -> None:
    with pytest.raises(ValueError, match="allow_fewer=True"):
        swor.sample(dist, 5)
    sample = swor.sample(dist, 5, allow_fewer=True)
    assert (sample.log_p[possible:] == -torch.inf).all()
    assert torch.allclose(
        dist.log_prob(sample.value[:possible]), sample.log_p[:possible], atol=1e-5
    )
    assert math.isclose(sample.log_p.exp().sum().item(), 1.0, rel_tol=1e-5)
    with pytest.raises(ValueError, match="with replacement"):
        swor.sample(dist, 5, replacement=True, allow_fewer=True)


def masked_levels(batch):
    """Two levels of which only three sequences are possible: end, (a, end) and (b, a)."""
    model = two_levels(batch)
    model.second = model.second.clone()
    model.second[0, :2] = -torch.inf
    model.second[1, 1:] = -torch.inf
    model.second = model.second.log_softmax(-1)
    return model


@pytest.mark.parametrize("search", [swor.stochastic_beam_search, swor.beam_search])
@pytest.mark.parametrize("k", [4, 30])
def test_sequences(search, k: int) -> None:
    model = masked_levels((2,))
    with pytest.raises(ValueError, match="allow_fewer=True"):
        search(model, k)
    sample = search(model, k, allow_fewer=True)
    assert sample.value.shape == (2, k, 2)
    assert_drawn_whole(sample, 3)
    swor.risk(sample).loss(torch.ones(2, k).double()).sum().backward()
    assert model.first.grad.isfinite().all()
    with torch.no_grad():
        assert_drawn_whole(search(model, k, allow_fewer=True), 3)


def test_sequences_drawn_some_at_a_time() -> None:
    first = torch.stack([log_probabilities(3, 4)[0], log_probabilities(3, 4)[1]])  # (2, 4)
    first[1, 2:] = -torch.inf  # two of four
    model = swor.Factorized(first.log_softmax(-1).unsqueeze(-2))
    sequences = swor.DistinctSequences(model, generator=seeded())
    sequences.draw(1)
    with pytest.raises(ValueError, match="allow_fewer=True"):
        sequences.draw(2)
    sequences.draw(2, allow_fewer=True)
    sequences.draw(1, allow_fewer=True)  # the last of one element, and nothing of the other
    sample = sequences.sample()
    assert sorted(sample.value[0, :, 0].tolist()) == [0, 1, 2, 3]
    assert sorted(sample.value[1, :2, 0].tolist()) == [0, 1]
    assert (sample.log_p[1, 2:] == -torch.inf).all() and (sample.value[1, 2:] == 0).all()
    assert (sample.log_rest == -torch.inf).all()
    exact = (model.log_probs.squeeze(-2).exp() * torch.arange(4)).sum(-1)
    found = swor.unordered_set(sample).mean(sample.value[..., 0].double())
    torch.testing.assert_close(found, exact)


def test_outcomes_that_are_split_over_ranks() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        logits = torch.tensor([[-torch.inf, 1.0, 2.0, -torch.inf], [0.0] * 4]).requires_grad_()
        with pytest.raises(ValueError, match="allow_fewer=True"):
            swor.gumbel_top_k_sharded(logits, 3)
        sample = swor.gumbel_top_k_sharded(logits, 3, allow_fewer=True)
    finally:
        dist.destroy_process_group()
    assert sorted(sample.value[0, :2].tolist()) == [1, 2] and sample.value[0, 2] == 0
    assert sample.log_p[0, 2] == -torch.inf and (sample.log_p[1] > -torch.inf).all()
    swor.unordered_set(sample).loss(sample.value.float()).sum().backward()
    assert logits.grad.isfinite().all()
