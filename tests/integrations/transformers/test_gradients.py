"""Log-probabilities of completions carry the gradient of the model, and it is unbiased."""

from __future__ import annotations

import pytest
import torch
from problems import seeded
from tiny_models import LENGTH, NAMES, log_probs, masks, rows, sequences, tiny

import swor
from swor.integrations.transformers import completion_log_probs, sample_completions


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_unbiased(name):
    """Every set of two completions, weighted by its probability: the exact gradient."""
    model, which = tiny(name), 1
    ids, mask = (x[which : which + 1] for x in masks(name))
    all_values = torch.tensor(sequences(name))
    parameter = model.lm_head.weight
    log_p = completion_log_probs(model, ids, all_values.unsqueeze(0), attention_mask=mask)[0]
    cost = torch.randn(len(all_values), generator=seeded(), dtype=torch.float64)
    (exact,) = torch.autograd.grad((log_p.exp() * cost).sum(), parameter, retain_graph=True)
    pairs = torch.combinations(torch.arange(len(all_values)), 2)
    sample = swor.Sample(all_values[pairs], log_p[pairs], scheme="without_replacement")
    loss = swor.unordered_set(sample).loss(cost[pairs])
    chance = swor.log_prob_set(log_p[pairs]).exp().detach()
    (mean,) = torch.autograd.grad((chance * loss).sum(), parameter)
    tolerance = 1e-10 if name == "gpt2" else 1e-6  # the others normalise in float32
    assert torch.allclose(mean, exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("chunk", [None, 1, 2])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_with_gradient(name, checkpointing, chunk):
    model = tiny(name)
    ids, mask = masks(name)
    value = torch.tensor(sequences(name))[[0, 7, 30]].expand(2, 3, LENGTH)
    exact = torch.stack(
        [torch.stack([log_probs(name, i)[x] for x in rows(value[i])]) for i in (0, 1)]
    )
    parameters = [p for p in model.parameters() if p.requires_grad]
    plain = completion_log_probs(model, ids, value, attention_mask=mask)
    assert torch.allclose(plain, exact, rtol=0, atol=1e-12)
    expected = torch.autograd.grad(plain.square().sum(), parameters)
    try:
        if checkpointing:
            model.train()
            model.gradient_checkpointing_enable({"use_reentrant": False})
        log_p = completion_log_probs(model, ids, value, attention_mask=mask, chunk=chunk)
        assert torch.allclose(log_p, exact, rtol=0, atol=1e-12)
        found = torch.autograd.grad(log_p.square().sum(), parameters)
    finally:
        model.gradient_checkpointing_disable()
        model.eval()
    tolerance = 1e-10 if name == "gpt2" else 1e-5  # the others normalise in float32
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=tolerance, atol=tolerance)


def test_samples_carry_gradient_and_leave_the_mode_alone():
    model = tiny("gpt2", dropout=0.5)
    ids, mask = masks("gpt2")
    model.train()
    model.transformer.h[0].eval()  # frozen by the user
    try:
        sample = sample_completions(model, ids, mask, k=3, max_new_tokens=LENGTH)
        assert model.training and not model.transformer.h[0].training
    finally:
        model.eval()
    exact = [[log_probs("gpt2", i)[x] for x in rows(sample.value[i])] for i in (0, 1)]
    assert torch.allclose(sample.log_p, torch.tensor(exact, dtype=torch.float64), atol=1e-12)
    assert torch.autograd.grad(sample.log_p.sum(), model.lm_head.weight)[0].abs().sum() > 0
