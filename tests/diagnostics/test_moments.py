"""Measured moments of gradients: equal to the exact ones, batched or looped."""

from __future__ import annotations

import pytest
import torch
from five_outcomes import cost, generator, logits, moments
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Independent, OneHotCategorical

import swor
from swor.diagnostics._streaming import update
from swor.diagnostics.moments import gradient_moments

NAMES = ["unordered_set", "rloo", "sum_and_sample", "deterministic_sum_and_sample"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["batch", "loop"])
def test_measured_moments_are_the_exact_ones(name: str, method) -> None:
    entry = swor.ESTIMATORS[name]
    exact = moments(entry.rule, entry.scheme, 3)
    parameter = logits()
    repeats = 20_000 if method == "batch" else 500
    m = gradient_moments(
        name, cost, Categorical(logits=parameter), [parameter], k=3, repeats=repeats,
        generator=generator(1), method=method,
    )  # fmt: skip
    assert m.method == method
    assert m.repeats == repeats
    assert bool(((m.mean - exact.gradient).abs() < 4.5 * m.mean_error).all())
    variance = exact.covariance.diagonal()
    assert bool(((m.variance - variance).abs() < 4.5 * m.variance_error).all())
    assert abs(float(m.trace - exact.total_variance)) < 4.0 * float(m.trace_error)
    assert abs(float(m.value - exact.mean)) < 4.0 * float(m.value_error)


class Encoder(nn.Module):
    """Two binary variables for each of three records."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2, dtype=torch.float64)
        self.decoder = nn.Linear(2, 1, dtype=torch.float64)
        for i, parameter in enumerate(self.parameters()):
            nn.init.normal_(parameter, generator=generator(i))
        self.x = torch.randn(3, 4, dtype=torch.float64, generator=generator(9))

    def dist(self) -> Independent:
        return Independent(Bernoulli(logits=self.linear(self.x)), 1)

    def cost(self, value: Tensor) -> Tensor:
        return self.decoder(value).squeeze(-1).square() + value[..., 0] * self.x[:, :1]


def test_auto_chooses_by_what_f_allows() -> None:
    model = Encoder()

    def method(f, parameters, estimator="unordered_set") -> str:
        return gradient_moments(
            estimator, f, model.dist(), parameters, k=2, repeats=4, generator=generator()
        ).method

    encoder = list(model.linear.parameters())
    assert method(model.cost, encoder) == "batch"
    assert method(model.cost, model.parameters()) == "loop"  # f has parameters
    assert method(lambda v: model.cost(v.reshape(3, -1, 2)), encoder) == "loop"  # one batch axis
    assert method(lambda v: v[..., 0] - v[..., 0].mean(), encoder) == "loop"  # mixes the batch
    own = swor.ESTIMATORS["unordered_set"].function
    assert method(model.cost, encoder, own) == "loop"  # an unknown estimator
    assert method(model.cost, encoder, "reinforce_batch_mean") == "loop"


@pytest.mark.parametrize("kind", ["binary", "one_hot", "index", "scalar"])
def test_batch_and_loop_agree(kind: str) -> None:
    """Where nothing is random, at k = |D|, both are the exact gradient of the batch's mean."""
    table = torch.randn(2, 3, dtype=torch.float64, generator=generator()).requires_grad_()
    dist, k = {
        "binary": (Independent(Bernoulli(logits=table), 1), 8),
        "one_hot": (OneHotCategorical(logits=table), 3),
        "index": (Categorical(probs=table.softmax(-1)), 3),
        "scalar": (Bernoulli(logits=table.sum()), 2),
    }[kind]

    def f(value: Tensor) -> Tensor:
        value = value.double()
        return _polynomial(value) if dist.event_shape else (value + 0.3).square()

    loss = swor.exact(f, dist).mean()
    (true,) = torch.autograd.grad(loss, table, retain_graph=True)
    for method in ("batch", "loop"):
        m = gradient_moments("unordered_set", f, dist, [table], k=k, repeats=3, method=method)
        torch.testing.assert_close(m.mean, true.flatten(), rtol=1e-10, atol=1e-12)
        assert float(m.trace) < 1e-24
        assert float(m.value) == pytest.approx(loss.item())


def _polynomial(value: Tensor) -> Tensor:
    return (value * torch.arange(1.0, value.shape[-1] + 1).double()).sum(-1).square()


def test_memory_does_not_depend_on_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    original = update

    def spy(stream, x):
        nonlocal largest
        largest = max(largest, x.numel())
        return original(stream, x)

    monkeypatch.setattr("swor.diagnostics.moments.update", spy)
    monkeypatch.setattr("swor.diagnostics.moments.NUMBERS", 1000)
    parameter = logits()
    for repeats in (500, 2000):
        gradient_moments(
            "rloo", cost, Categorical(logits=parameter), [parameter], k=2, repeats=repeats
        )
        assert largest <= 1000


def test_bad_input_is_refused() -> None:
    parameter = logits()
    dist = Categorical(logits=parameter)
    with pytest.raises(ValueError, match=r"no estimator 'unordered'.*unordered_set"):
        gradient_moments("unordered", cost, dist, [parameter])
    with pytest.raises(ValueError, match="at least 2"):
        gradient_moments("unordered_set", cost, dist, [parameter], repeats=1)
    with pytest.raises(ValueError, match="parameters is empty"):
        gradient_moments("unordered_set", cost, dist, [])
    with pytest.raises(ValueError, match="expected 'auto', 'batch' or 'loop'"):
        gradient_moments("unordered_set", cost, dist, [parameter], method="fast")


@pytest.mark.parametrize("method", ["loop", "batch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_impossible_outcome_of_a_distribution_made_with_probs_is_never_drawn(method, dtype):
    probs = torch.tensor([0.5, 0.5, 0.0], dtype=dtype, requires_grad=True)
    costs = torch.tensor([0.0, 0.0, 100.0], dtype=dtype)
    dist = torch.distributions.Categorical(probs=probs)
    found = swor.gradient_moments(
        "rloo", lambda x: costs[x], dist, [probs], k=4, repeats=400, method=method
    )
    assert found.value == 0.0


def test_both_methods_differentiate_probabilities_alike():
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    costs = torch.tensor([1.0, 4.0, 2.0], dtype=torch.float64)
    dist = torch.distributions.Categorical(probs=weights)
    exact = torch.autograd.grad(swor.exact(lambda x: costs[x], dist), weights, retain_graph=True)
    for method in ("loop", "batch"):
        found = swor.gradient_moments(  # the whole domain: every draw is the exact gradient
            "unordered_set", lambda x: costs[x], dist, [weights], k=3, repeats=3, method=method
        )
        torch.testing.assert_close(found.mean, exact[0])
