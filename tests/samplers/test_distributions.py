"""Samples of torch.distributions have their encoding, seeds and empty batches."""

from __future__ import annotations

import math

import pytest
import torch
from problems import log_probabilities, seeded
from torch.distributions import Bernoulli, Categorical, Independent, OneHotCategorical
from two_level_sequences import two_levels

import swor
from swor.samplers.distributions import support

DISTRIBUTIONS = [
    (Categorical(logits=torch.zeros(3, 4)), 3),
    (OneHotCategorical(logits=torch.zeros(2, 3, 4)), 3),
    (Bernoulli(logits=torch.zeros(5)), 2),
    (Independent(Bernoulli(logits=torch.zeros(3, 4)), 1), 6),
    (Independent(Bernoulli(logits=torch.zeros(2, 3)), 2), 6),
    (Independent(Categorical(logits=torch.zeros(2, 3, 4)), 1), 5),
    (Independent(OneHotCategorical(logits=torch.zeros(2, 3, 4)), 1), 5),
    (Independent(Independent(Categorical(logits=torch.zeros(2, 3, 4)), 1), 1), 5),
    (Independent(Categorical(logits=torch.zeros(6, 4)), 0), 4),
]


@pytest.mark.parametrize("dist, k", DISTRIBUTIONS, ids=lambda x: str(x)[:40])
@pytest.mark.parametrize("replacement", [False, True])
def test_samples_have_the_encoding_of_the_distribution(dist, k, replacement):
    sample = swor.sample(dist, k, replacement=replacement, generator=seeded())
    own = dist.sample()
    b = len(dist.batch_shape)
    assert sample.value.shape == (*dist.batch_shape, k, *dist.event_shape)
    assert sample.value.dtype == own.dtype
    log_prob = dist.log_prob(sample.value.movedim(b, 0)).movedim(0, -1)
    assert torch.allclose(sample.log_p, log_prob, atol=1e-5)
    if not replacement:
        flat = sample.value.reshape(-1, k, max(1, math.prod(dist.event_shape)))
        assert all(len({tuple(x) for x in row}) == k for row in flat.tolist())


def test_the_same_seed_gives_the_same_sample():
    log_probs = log_probabilities(3, 700)
    model = swor.Factorized(log_probabilities(3, 20, 10))
    draws = {
        "gumbel": lambda g: swor.gumbel_top_k(log_probs, 5, generator=g),
        "independent": lambda g: swor.with_replacement(log_probs, 5, generator=g),
        "top k": lambda g: swor.top_k_and_sample(log_probs, 5, m=3, generator=g),
        "beams": lambda g: swor.stochastic_beam_search(model, 5, generator=g),
        "ancestral": lambda g: swor.ancestral_sample(model, 5, generator=g),
        "sequences": lambda g: swor.stochastic_beam_search(two_levels((3,)), 3, generator=g),
    }
    for draw in draws.values():
        first, again, other = draw(seeded(3)), draw(seeded(3)), draw(seeded(4))
        assert torch.equal(first.value, again.value)
        assert not torch.equal(first.value, other.value)


@pytest.mark.parametrize("batch", [(0,), (2, 0)])
def test_empty_batches(batch):
    log_probs = torch.zeros(*batch, 600).log_softmax(-1)
    for k in (1, 3, 12):
        sample = swor.gumbel_top_k(log_probs, k)
        assert swor.unordered_set(sample).loss(torch.zeros(*batch, k)).shape == batch
    model = swor.Factorized(torch.zeros(*batch, 20, 10).log_softmax(-1))
    for draw in (swor.stochastic_beam_search, swor.ancestral_sample, swor.beam_search):
        assert draw(model, 3).value.shape == (*batch, 3, 20)
    assert swor.with_replacement(log_probs, 3).value.shape == (*batch, 3)
    assert swor.top_k_and_sample(log_probs, 3, m="auto").value.shape == (*batch, 3)


IMPOSSIBLE = {
    "Categorical": lambda p: Categorical(probs=p),
    "OneHotCategorical": lambda p: OneHotCategorical(probs=p),
    "Bernoulli": lambda p: Independent(Bernoulli(probs=p[..., 1:]), 1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("make", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_outcome_of_probability_zero_is_impossible(make, dtype):
    """torch clamps the logits of distributions that are made with probs to the machine epsilon."""
    p = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=dtype).requires_grad_()
    dist = make(p)
    with pytest.raises(ValueError, match="only 2 outcomes"):
        swor.sample(dist, 3)
    sample = swor.sample(dist, 2, generator=seeded())
    assert (sample.log_rest == -torch.inf).all()
    swor.unordered_set(sample).loss(torch.tensor([1.0, 3.0], dtype=dtype)).backward()
    assert p.grad.isfinite().all() and p.grad.abs().sum() > 0
    assert (support(dist).log_p.exp() > 0).sum() == 2


def test_a_probability_below_the_machine_epsilon_keeps_its_size():
    p = torch.tensor([1.0 - 1e-6, 1e-6, 1e-12])
    for dist in (Categorical(probs=p), OneHotCategorical(probs=p)):
        assert torch.allclose(support(dist).log_p.exp(), p, rtol=1e-5, atol=0)
    bits = Bernoulli(probs=torch.tensor([1e-12, 1.0]))
    expected = torch.tensor([[1.0, 1e-12], [0.0, 1.0]])
    assert torch.allclose(support(bits).log_p.exp(), expected, rtol=1e-6, atol=0)


def test_logits_are_used_as_they_are_even_if_probabilities_were_read():
    logits = torch.tensor([0.0, -40.0, -200.0], requires_grad=True)
    dist = Categorical(logits=logits)
    assert dist.probs[2] == 0.0
    assert torch.equal(support(dist).log_p, dist.logits)


@pytest.mark.parametrize("p", [1e-8, 1e-3, 0.4, 1.0 - 1e-7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_probabilities_keep_their_gradient(p, dtype):
    """torch clamps the logits of a distribution that is made with probabilities."""
    p = torch.tensor(p, dtype=dtype, requires_grad=True)
    costs = torch.tensor([5.0, 7.0], dtype=dtype)
    pair = torch.stack([1.0 - p, p])
    for value in (
        swor.exact(lambda x: 5.0 + 2.0 * x, Bernoulli(probs=p)),
        swor.exact(lambda x: costs[x], Categorical(probs=pair)),
        swor.exact(lambda x: (costs * x).sum(-1), OneHotCategorical(probs=pair)),
    ):
        (gradient,) = torch.autograd.grad(value, p, retain_graph=True)
        assert gradient.item() == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_a_variable_that_is_sure_has_no_gradient(p):
    p = torch.tensor(p, requires_grad=True)
    value = swor.exact(lambda x: 5.0 + 2.0 * x, Bernoulli(probs=p))
    (gradient,) = torch.autograd.grad(value, p)
    assert value.item() == 5.0 + 2.0 * p.item() and gradient.item() == 0.0


def test_what_was_looked_at_does_not_change_the_distribution():
    """The other parameter of a distribution is computed when it is first asked for."""
    logits = torch.tensor([0.0, -200.0])
    for dist in (Categorical(logits=logits), Categorical(probs=torch.tensor([1.0, 0.0]))):
        before = support(dist).log_p
        assert dist.logits is not None and dist.probs is not None
        assert torch.equal(before, support(dist).log_p)
    assert support(Categorical(logits=logits)).log_p[1] == -200.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grad", [True, False])
def test_large_products_in_half_precision(dtype, grad):
    """Their probabilities sum to 1 only up to the rounding of every variable."""
    for seed in range(3):
        logits = torch.randn(2, 20, generator=seeded(seed)).to(dtype).requires_grad_(grad)
        of_three = (2 * torch.randn(2, 12, 3, generator=seeded(seed))).to(dtype)
        for dist in (
            Independent(Bernoulli(logits=logits), 1),
            Independent(OneHotCategorical(logits=of_three, validate_args=False), 1),
        ):
            with torch.set_grad_enabled(grad):
                sample = swor.sample(dist, 3, generator=seeded(seed))
                weights = swor.unordered_set(sample).weight
            assert {sample.log_p.dtype, sample.log_rest.dtype, sample.kappa.dtype} == {dtype}
            assert torch.allclose(weights.float().sum(-1), torch.ones(2), rtol=0, atol=1e-5)
            exact = dist.log_prob(sample.value.movedim(1, 0)).movedim(0, 1)
            assert torch.allclose(sample.log_p.float(), exact.float(), rtol=0.02, atol=0.1)
