"""Random shapes, precisions, entropies and masks: no NaN, and weights that sum to 1."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import seeded

import swor

DTYPES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@st.composite
def categoricals(draw):
    """Log-probabilities of any shape, some masked, and a k that the support allows."""
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    n = draw(st.integers(1, 20))
    dtype = draw(st.sampled_from(list(DTYPES)))
    scale = draw(st.sampled_from([0.0, 1.0, 10.0, 80.0]))
    masked = draw(st.integers(0, n - 1))
    seed = draw(st.integers(0, 2**31))
    logits = scale * torch.randn(*batch, n, generator=seeded(seed), dtype=torch.float64)
    hidden = torch.rand(*batch, n, generator=seeded(seed)).argsort(-1) < masked
    logits = logits.to(dtype).masked_fill(hidden, -torch.inf)
    k = draw(st.integers(1, n - masked))
    return logits.requires_grad_(), k, seed


@settings(max_examples=150, deadline=None, derandomize=True)
@given(categoricals())
def test_losses_are_finite_and_weights_sum_to_one(case):
    logits, k, seed = case
    sample = swor.gumbel_top_k(logits.log_softmax(-1), k, generator=seeded(seed))
    assert sample.value.sort(-1).values.diff(dim=-1).gt(0).all()
    weights = swor.unordered_set(sample)
    tolerance = DTYPES[logits.dtype]
    assert (weights.weight.double().sum(-1) - 1).abs().max() <= tolerance
    if weights.baseline_weights is not None:
        assert (weights.baseline_weights.double().sum(-1) - 1).abs().max() <= tolerance
    cost = torch.randn(sample.log_p.shape, generator=seeded(seed)).to(logits.dtype)
    for rule in (swor.unordered_set, swor.sum_and_sample, swor.raj, swor.risk, swor.single_sample):
        loss = rule(sample).loss(cost)
        assert loss.isfinite().all()
        (gradient,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
        assert gradient.isfinite().all()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 12),
    c=st.integers(1, 6),
    scale=st.sampled_from([0.0, 1.0, 20.0, 100.0]),
    k=st.integers(1, 9),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_products_are_sampled_without_replacement(n, c, scale, k, seed, dtype):
    k = min(k, c**n)
    logits = scale * torch.randn(3, n, c, generator=seeded(seed), dtype=dtype)
    model = swor.Factorized(logits.log_softmax(-1))
    sample = swor.stochastic_beam_search(model, k, generator=seeded(seed))
    for row in sample.value.tolist():
        assert len({tuple(x) for x in row}) == k
    total = torch.logaddexp(sample.log_p.logsumexp(-1), sample.log_rest)
    assert total.abs().max() <= (1e-10 if dtype == torch.float64 else 1e-4)
    assert sample.kappa.isnan().sum() == 0
    weights = swor.unordered_set(sample)
    assert (weights.weight.sum(-1) - 1).abs().max() <= 1e-4
