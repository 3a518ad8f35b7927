"""Measured moments of gradients: equal to the exact ones, batched or looped."""

from __future__ import annotations

from functools import partial

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


def own(f, dist, k, *, generator=None):
    return swor.ESTIMATORS["unordered_set"](f, dist, k, generator=generator)


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
    assert method(model.cost, encoder, own) == "loop"  # an unknown estimator
    assert method(model.cost, encoder, "reinforce_batch_mean") == "loop"


def test_a_batch_is_refused_where_estimates_are_not_side_by_side() -> None:
    model = Encoder()
    dist, encoder = model.dist(), list(model.linear.parameters())

    def refused(message: str, estimator, f, parameters) -> None:
        with pytest.raises(ValueError, match=rf"(?s){message}.*; expected.*method='loop'"):
            gradient_moments(estimator, f, dist, parameters, k=2, repeats=4, method="batch")

    refused("not all parameters affect", "rloo", model.cost, model.parameters())
    bias = model.linear.bias
    refused("f depends on the parameters", own, lambda v: v[..., 0] * bias.sum(), encoder)
    refused("another batch axis", "rloo", lambda v: model.cost(v.reshape(3, -1, 2)), encoder)
    for estimator in ("reinforce_batch_mean", swor.reinforce_batch_mean):
        refused("depends on the others", estimator, model.cost, encoder)
    m = gradient_moments(own, model.cost, dist, encoder, k=2, repeats=4, method="batch")
    assert m.method == "batch"  # a callable is trusted


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


@pytest.mark.parametrize("method", ["auto", "loop", "batch"])
def test_one_tensor_is_differentiated_as_it_is(method) -> None:
    parameter = logits()
    options = {"k": 2, "repeats": 50, "method": method}
    one, several = (
        gradient_moments("rloo", cost, dist, p, generator=generator(), **options)
        for dist, p in [(Categorical(logits=parameter), p) for p in (parameter, [parameter])]
    )
    assert torch.equal(one.mean, several.mean) and one.trace == several.trace > 0.0


def test_a_loss_must_reach_one_of_the_parameters() -> None:
    parameter, others = logits(), list(nn.Linear(1, 2).parameters())
    dist = Categorical(logits=parameter)
    for method in ("auto", "loop"):
        with pytest.raises(ValueError, match=r"depends on none of the parameters.*\[logits\]"):
            gradient_moments("rloo", cost, dist, others, repeats=9, method=method)
    m = gradient_moments("rloo", cost, dist, [parameter, *others], repeats=9)
    assert bool((m.variance[5:] == 0.0).all()) and bool((m.variance[:5] > 0.0).any())
    detached = Categorical(logits=parameter.detach())
    with pytest.raises(ValueError, match="do not detach the logits"):
        gradient_moments("rloo", cost, detached, [parameter], repeats=9)
    with torch.no_grad(), pytest.raises(ValueError, match=r"leave torch.no_grad\(\)"):
        gradient_moments("rloo", cost, dist, [parameter], repeats=9)


def test_a_partly_frozen_model_is_told_which_parameters_to_pass() -> None:
    model = Encoder()
    model.linear.bias.requires_grad_(False)
    with pytest.raises(ValueError, match=r"1 of the 4 parameters do not .* if p.requires_grad\]"):
        gradient_moments("rloo", model.cost, model.dist(), model.parameters())
    with pytest.raises(TypeError, match=r"contains a tuple; expected tensors"):
        gradient_moments("rloo", model.cost, model.dist(), model.named_parameters())


def test_a_rule_is_the_estimator_of_its_name() -> None:
    parameter = logits()
    dist, options = Categorical(logits=parameter), {"k": 2, "repeats": 20}
    by_rule, by_entry, by_name = (
        gradient_moments(e, cost, dist, [parameter], generator=generator(), **options)
        for e in (swor.unordered_set, swor.ESTIMATORS["unordered_set"], "unordered_set")
    )
    assert by_rule.trace == by_entry.trace == by_name.trace and by_rule.method == "batch"
    for wrong, message in (
        (partial(swor.sum_and_sample, m=2), "a functools.partial, which cannot.*lift"),
        (swor.normalize, "normalize, which cannot be called"),
        (3, "an int, which cannot be called with"),
        (None, "None, which cannot be called with"),
    ):
        with pytest.raises(TypeError, match=message):
            gradient_moments(wrong, cost, dist, [parameter], **options)
