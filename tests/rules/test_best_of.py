"""The best of m from distinct samples: proofs by enumeration, edges, errors."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from best_of_enumeration import Problem, covariance, distinct, exact, independent
from torch.distributions import Categorical

import swor
from swor.math.ratios import log_prob_set

SIZES = [(n, k, m) for n in range(1, 7) for k in range(1, n + 1) for m in range(1, k + 1)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_sample(k, n, batch=(), dtype=torch.float64, seed=0, scale=1.0):
    """A sample of n outcomes, not in their order, and a value for each."""
    g = seeded(seed)
    log_probs = (scale * torch.randn(*batch, n, generator=g, dtype=torch.float64)).log_softmax(-1)
    sample = swor.gumbel_top_k(log_probs.to(dtype), k, generator=g)
    return sample, torch.randn(*batch, k, generator=g, dtype=torch.float64).to(dtype)


# Unbiasedness, by going through all samples.


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("scale", [0.5, 4.0])
@pytest.mark.parametrize("n, k, m", SIZES)
def test_value_and_gradient_are_unbiased(n, k, m, scale, largest):
    problem = Problem(n, scale)
    sample, probability = distinct(problem.log_probs, k)
    loss = swor.best_of(sample, m, largest=largest).loss(problem.value()[sample.value])
    estimate, target = probability @ loss, problem.exact(m, largest=largest)
    assert (estimate - target).abs() <= 1e-12
    assert (problem.gradient(estimate) - problem.gradient(target)).abs().max() <= 1e-12


@pytest.mark.parametrize("n, k, m", SIZES)
def test_off_policy_it_is_unbiased(n, k, m):
    """Sampled from q, differentiated by the parameters of p."""
    problem = Problem(n)
    sample, probability = distinct(Problem(n, seed=9).log_probs.detach(), k)
    log_p, f = problem.log_probs[sample.value], problem.value()[sample.value]
    estimate = probability @ swor.best_of(sample, m).loss(f, log_p=log_p)
    target = problem.exact(m)
    assert (estimate - target).abs() <= 1e-12
    assert (problem.gradient(estimate) - problem.gradient(target)).abs().max() <= 1e-12


def test_without_the_ratios_it_would_be_biased():
    problem = Problem(5)
    sample, probability = distinct(Problem(5, seed=9).log_probs.detach(), 3)
    estimate = probability @ swor.best_of(sample, 2).mean(problem.value()[sample.value])
    assert (estimate - problem.exact(2)).abs() > 1e-2


def test_the_policy_itself_as_target_changes_nothing():
    sample, f = random_sample(5, 9, batch=(4,))
    sample = replace(sample, log_p=sample.log_p.requires_grad_())
    for m in (1, 3):
        losses = [swor.best_of(sample, m).loss(f, log_p=x) for x in (None, sample.log_p)]
        gradients = [torch.autograd.grad(x.sum(), sample.log_p)[0] for x in losses]
        torch.testing.assert_close(*losses, rtol=0.0, atol=1e-13)
        torch.testing.assert_close(*gradients, rtol=0.0, atol=1e-13)


# Where it meets what is known.


@pytest.mark.parametrize("k, n", [(1, 4), (2, 5), (5, 9), (8, 20), (9, 20), (16, 40)])
def test_of_one_draw_it_is_the_unordered_set_estimator(k, n):
    for scale in (0.5, 4.0):
        sample, f = random_sample(k, n, batch=(3,), scale=scale)
        sample = replace(sample, log_p=sample.log_p.requires_grad_())
        weights, ours = swor.unordered_set(sample), swor.best_of(sample, 1)
        assert (ours.mean(f) - weights.mean(f)).abs().max() <= 1e-14
        assert (ours.loss(f) - weights.loss(f)).abs().max() <= 1e-14
        gradient = torch.autograd.grad(ours.loss(f).sum(), sample.log_p)[0]
        with_baseline = weights.weight * (f - weights.baseline(f))
        assert (gradient - with_baseline).abs().max() <= 1e-14
        if k > 1:
            assert (ours.variance(f) - swor.murthy_variance(sample, f)).abs().max() <= 1e-13


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("n", [1, 3, 10])
def test_the_whole_domain_is_exact(n, largest):
    problem = Problem(n)
    dist = Categorical(logits=problem.theta)
    sample = swor.gumbel_top_k(problem.log_probs, n, generator=seeded())
    f = problem.value()
    for m in range(1, n + 4):  # also of more draws than there are outcomes
        ours = swor.best_of(sample, m, largest=largest)
        target = swor.exact_best_of(lambda x: f[x], dist, m, largest=largest)
        loss = ours.loss(f[sample.value])
        assert (loss - target).abs() <= 1e-13
        assert (problem.gradient(loss) - problem.gradient(target)).abs().max() <= 1e-13
        assert ours.variance(f[sample.value].detach()) == 0.0


def test_the_exact_value_is_the_definition():
    problem = Problem(6)
    dist = Categorical(logits=problem.theta)
    f = problem.value()
    for m, largest in product((1, 2, 5, 40), (True, False)):
        ours = swor.exact_best_of(lambda x: f[x], dist, m, largest=largest)
        target = problem.exact(m, largest=largest)
        assert (ours - target).abs() <= 1e-15 * max(m, 10)  # powers multiply the rounding
        assert (problem.gradient(ours) - problem.gradient(target)).abs().max() <= 1e-13
    with pytest.raises(ValueError, match="m is 0; expected at least 1"):
        swor.exact_best_of(lambda x: f[x], dist, 0)


def test_a_list_of_draws_is_the_definition_of_the_exact_value():
    p, f = torch.tensor([0.5, 0.2, 0.3]), torch.tensor([1.0, 3.0, -1.0])
    draws = torch.tensor(list(product(range(3), repeat=4)))
    target = (p[draws].prod(-1) * f[draws].amax(-1)).sum()
    torch.testing.assert_close(swor.exact_best_of(lambda x: f[x], Categorical(probs=p), 4), target)


# It is a conditional expectation of the estimators from independent samples.


def rao_blackwell(problem, k, m, baseline):
    """E[a | S] for the coefficients a of an independent estimate of k draws, for every set S."""
    n = len(problem.theta)
    draws, log_p = torch.tensor(list(product(range(n), repeat=k))), problem.log_probs.detach()
    leaf = log_p[draws].requires_grad_()
    sample = swor.Sample(draws, leaf, scheme=swor.Scheme.WITH_REPLACEMENT)
    f = problem.value().detach()
    loss = swor.best_of_independent(sample, m, baseline=baseline).loss(f[draws])
    by_draw = torch.autograd.grad(loss.sum(), leaf)[0]
    by_outcome = torch.zeros(len(draws), n, dtype=f.dtype).scatter_add(-1, draws, by_draw)
    sets, _ = distinct(log_p, k)
    for s in sets.value.tolist():
        chance = torch.tensor([_completes(x, s, log_p) for x in draws.tolist()], dtype=f.dtype)
        share = log_p[draws].sum(-1).exp() * chance
        share = share / share.sum()
        yield s, share @ loss.detach(), share @ by_outcome


def _completes(draws, outcomes, log_p):
    """The probability that draws without replacement go on from these to exactly this set."""
    if not set(draws) <= set(outcomes):
        return 0.0
    left = [i for i in outcomes if i not in draws]
    out = torch.tensor([i not in set(draws) for i in range(len(log_p))])
    if not left:
        return 1.0
    return log_prob_set(log_p[out].log_softmax(-1)[_places(left, out)]).exp().item()


def _places(left, remaining):
    return [int(remaining[:i].sum()) for i in left]


@pytest.mark.parametrize("k, m, baseline", [(2, 1, "centred"), (3, 2, "centred"), (3, 3, "fewer")])
def test_given_the_set_it_is_the_mean_of_the_independent_estimator(k, m, baseline):
    problem = Problem(4)
    log_p, f = problem.log_probs.detach(), problem.value().detach()
    for outcomes, value, coefficients in rao_blackwell(problem, k, m, baseline):
        leaf = log_p[outcomes].requires_grad_()
        rest = [i for i in range(4) if i not in outcomes]
        sample = swor.Sample(
            torch.tensor(outcomes), leaf, log_p[rest].logsumexp(-1), scheme="without_replacement"
        )
        loss = swor.best_of(sample, m).loss(f[outcomes])
        ours = torch.autograd.grad(loss, leaf)[0]
        assert (loss - value).abs() <= 1e-12
        assert (ours - coefficients[outcomes]).abs().max() <= 1e-12


def moments(make, drawn, problem):
    """The variance of the value, and the covariance of the gradient by the logits."""
    sample, probability = drawn
    f = problem.value().detach()[sample.value]
    leaf = sample.log_p.detach().requires_grad_()
    loss = make(replace(sample, log_p=leaf)).loss(f)
    by_sample = torch.autograd.grad(loss.sum(), leaf)[0]
    n = len(problem.theta)
    by_outcome = torch.zeros(len(f), n, dtype=f.dtype).scatter_add(-1, sample.value, by_sample)
    score = torch.eye(n, dtype=f.dtype) - problem.log_probs.detach().exp()
    value = covariance(loss.detach().unsqueeze(-1), probability).item()
    return value, covariance(by_outcome @ score, probability)


@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("k, m", [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3)])
def test_no_independent_estimator_of_its_kind_has_less_variance(k, m, scale):
    problem = Problem(6, scale)
    ours = moments(lambda s: swor.best_of(s, m), distinct(problem.log_probs, k), problem)
    theirs = moments(
        lambda s: swor.best_of_independent(s, m, baseline="centred"),
        independent(problem.log_probs, k),
        problem,
    )
    assert ours[0] < theirs[0]
    assert torch.linalg.eigvalsh(theirs[1] - ours[1]).min() >= -1e-12


@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("m", [2, 3, 4])
def test_as_many_samples_as_draws_still_have_a_baseline(m, scale):
    """At k = m the gradient is that of the best of m − 1 others, given the set."""
    problem = Problem(6, scale)
    ours = moments(lambda s: swor.best_of(s, m), distinct(problem.log_probs, m), problem)
    theirs = moments(
        lambda s: swor.best_of_independent(s, m, baseline="fewer"),
        independent(problem.log_probs, m),
        problem,
    )
    assert torch.linalg.eigvalsh(theirs[1] - ours[1]).min() >= -1e-12
    shifted = random_sample(m, 9)
    sample = replace(shifted[0], log_p=shifted[0].log_p.requires_grad_())
    losses = [swor.best_of(sample, m).loss(shifted[1] + c) for c in (0.0, 100.0)]
    torch.testing.assert_close(*(torch.autograd.grad(x, sample.log_p)[0] for x in losses))


# What is often done instead.


@pytest.mark.parametrize("baseline", ["none", "fewer", "centred"])
def test_distinct_samples_taken_for_independent_ones_are_biased(baseline):
    problem = Problem(5)
    sample, probability = distinct(problem.log_probs, 3)
    wrong = replace(sample, scheme=swor.Scheme.WITH_REPLACEMENT)
    f = problem.value().detach()
    estimate = probability @ swor.best_of_independent(wrong, 2, baseline=baseline).loss(
        f[sample.value]
    )
    target = exact(f, problem.log_probs, 2)
    assert (estimate - target).abs() > 1e-2
    ours, right = (torch.autograd.grad(x, problem.theta)[0] for x in (estimate, target))
    assert (ours - right).abs().max() > 1e-2


def test_the_best_of_all_other_distinct_samples_is_a_biased_baseline():
    """Each sample is credited with what it adds to the best of the others."""
    problem = Problem(5)
    k = m = 3
    sample, probability = distinct(problem.log_probs, k)
    f = problem.value().detach()[sample.value]
    others = f.unsqueeze(-2).masked_fill(torch.eye(k, dtype=torch.bool), -torch.inf).amax(-1)
    credit = f.amax(-1, keepdim=True) - others
    gradient = torch.autograd.grad(probability @ (credit * sample.log_p).sum(-1), problem.theta)[0]
    target = exact(problem.value().detach(), problem.log_probs, m)
    right = torch.autograd.grad(target, problem.theta)[0]
    assert (gradient - right).abs().max() > 1e-2


def test_the_best_of_all_other_independent_samples_is_a_worse_baseline():
    problem = Problem(5, 0.5)
    sample, probability = independent(problem.log_probs.detach(), 4)
    f = problem.value().detach()[sample.value]
    score = torch.eye(5, dtype=f.dtype) - problem.log_probs.detach().exp()

    def coefficients(baseline):
        leaf = sample.log_p.clone().requires_grad_()
        loss = swor.best_of_independent(replace(sample, log_p=leaf), 2, baseline=baseline).loss(f)
        return torch.autograd.grad(loss.sum(), leaf)[0]

    def spread(credit):
        gradient = torch.einsum("sk,skd->sd", credit, score[sample.value])
        return probability @ gradient, covariance(gradient, probability).trace()

    others = f.unsqueeze(-2).masked_fill(torch.eye(4, dtype=torch.bool), -torch.inf).amax(-1)
    mean, variance = spread(coefficients("none") - 2 / 4 * others)
    right, least = spread(coefficients("centred"))
    assert (mean - right).abs().max() <= 1e-12  # the others are independent: no bias
    assert variance > 1.2 * least


# Ties, and outcomes that are impossible.


@pytest.mark.parametrize("k, m", [(1, 1), (2, 2), (3, 2), (4, 2), (5, 5)])
def test_ties_leave_value_and_score_unbiased(k, m):
    problem = Problem(5)
    f = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    sample, probability = distinct(problem.log_probs, k)
    estimate = probability @ swor.best_of(sample, m).loss(f[sample.value])
    target = exact(f, problem.log_probs, m)
    assert (estimate - target).abs() <= 1e-12
    ours, right = (torch.autograd.grad(x, problem.theta)[0] for x in (estimate, target))
    assert (ours - right).abs().max() <= 1e-12


def expected_weights(f, log_probs, k, m):
    """The mean of the derivative of the value by f."""
    f = f.clone().requires_grad_()
    sample, probability = distinct(log_probs, k)
    estimate = probability @ swor.best_of(sample, m).loss(f[sample.value])
    return torch.autograd.grad(estimate, f)[0]


@pytest.mark.parametrize("k, m", [(1, 1), (2, 2), (3, 2), (4, 3), (5, 2)])
def test_where_outcomes_tie_the_gradient_is_that_of_the_likelier(k, m):
    """It is that of the exact value, and a subgradient: J, convex in f, lies above its tangent."""
    log_probs = Problem(5).log_probs.detach()
    f = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5], dtype=torch.float64)
    tied = expected_weights(f, log_probs, k, m)
    leaf = f.clone().requires_grad_()
    value = swor.exact_best_of(lambda x: leaf[x], Categorical(logits=log_probs), m)
    assert (tied - torch.autograd.grad(value, leaf)[0]).abs().max() <= 1e-12
    at_ties = log_probs.masked_fill(f < 1.0, -torch.inf)
    others = 1.0 - at_ties.max().exp()
    assert (tied[at_ties.argmax()] - (1.0 - others**m)).abs() <= 1e-12
    for direction in torch.randn(200, 5, generator=seeded(), dtype=torch.float64):
        assert exact(f + direction, log_probs, m) >= value + tied @ direction - 1e-12


def test_ties_do_not_depend_on_the_order_drawn():
    sample, _ = random_sample(4, 7)
    f = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    order = torch.tensor([3, 2, 0, 1])
    shuffled = replace(sample, value=sample.value[order], log_p=sample.log_p[order])
    rows = []
    for drawn, values in ((sample, f), (shuffled, f[order])):
        leaf = values.clone().requires_grad_()
        swor.best_of(drawn, 2).mean(leaf).backward()
        rows.append(leaf.grad)
    torch.testing.assert_close(rows[0][order], rows[1])


@pytest.mark.parametrize("k", [4, 9])
def test_an_impossible_outcome_changes_nothing(k):
    """Also where what remains is only as large as the number of draws."""
    sample, f = random_sample(k, 12, batch=(2,))
    with_it = replace(
        sample,
        log_p=torch.cat([sample.log_p, torch.full((2, 1), -torch.inf, dtype=f.dtype)], -1),
    )
    more = torch.cat([f, torch.full((2, 1), 7.0, dtype=f.dtype)], -1)
    for m in sorted({1, 2, k - 1, k}):
        rows = []
        for drawn, values in ((sample, f), (with_it, more)):
            leaf = drawn.log_p.clone().requires_grad_()
            loss = swor.best_of(replace(drawn, log_p=leaf), m).loss(values)
            rows.append((loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]))
        assert (rows[0][0] - rows[1][0]).abs().max() <= 1e-13
        assert (rows[0][1] - rows[1][1][..., :k]).abs().max() <= 1e-12
        assert (rows[1][1][..., k] == 0.0).all()


def test_too_few_possible_outcomes_are_refused():
    sample, f = random_sample(3, 6)
    sample = replace(sample, log_p=sample.log_p.index_fill(-1, torch.tensor([0, 1]), -torch.inf))
    with pytest.raises(ValueError, match="only 1 outcomes of positive probability"):
        swor.best_of(sample, 2)
    everything = replace(
        sample, log_p=sample.log_p - sample.log_p[2], log_rest=-torch.tensor(torch.inf).double()
    )
    assert swor.best_of(everything, 2).mean(f) == f[2]  # the only outcome there is
    both = [
        torch.stack([a, b])
        for a, b in zip(
            (everything.log_p, everything.log_rest), (sample.log_p, sample.log_rest), strict=True
        )
    ]
    with pytest.raises(ValueError, match="k = 3 outcomes; expected at least 4"):
        swor.best_of(swor.Sample(torch.zeros(2, 3), *both, scheme="without_replacement"), 4)


def test_a_policy_that_gives_nothing_to_an_outcome():
    sample, f = random_sample(3, 6)
    log_p = sample.log_p.index_fill(-1, torch.tensor([1]), -torch.inf).requires_grad_()
    loss = swor.best_of(sample, 2).loss(f, log_p=log_p)
    loss.backward()
    assert loss.isfinite() and log_p.grad.isfinite().all() and log_p.grad[1] == 0.0


# The variance from the sample itself.


@pytest.mark.parametrize("scale", [0.5, 4.0])
@pytest.mark.parametrize("n, k, m", [size for size in SIZES if size[1] >= 2 * size[2]])
def test_the_estimated_variance_is_unbiased(n, k, m, scale):
    problem = Problem(n, scale)
    f = problem.value().detach()
    sample, probability = distinct(problem.log_probs.detach(), k)
    for largest in (True, False):
        ours = swor.best_of(sample, m, largest=largest)
        mean, variance = ours.mean(f[sample.value]), ours.variance(f[sample.value])
        exact_variance = covariance(mean.unsqueeze(-1), probability).squeeze()
        assert (probability @ variance - exact_variance).abs() <= 1e-12
        assert variance.min() >= -1e-13


def test_a_variance_needs_twice_as_many_samples():
    sample, f = random_sample(3, 6)
    with pytest.raises(ValueError, match="k = 3 outcomes; expected at least 4 for the variance"):
        swor.best_of(sample, 2).variance(f)


# Shapes, precisions, compilers.


@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.parametrize("batch", [(), (5,), (2, 3), (0,), (2, 0)])
def test_any_batch(batch, k):
    sample, f = random_sample(k, 14, batch=(*batch,))
    f.requires_grad_()
    ours = swor.best_of(sample, 1 + k // 3)
    assert ours.mean(f).shape == ours.loss(f).shape == batch
    if k == 10:
        assert ours.variance(f.detach()).shape == batch
    ours.loss(f).sum().backward()
    if batch == (2, 3):
        one = replace(sample, log_p=sample.log_p[1, 2], log_rest=sample.log_rest[1, 2])
        assert (swor.best_of(one, 1 + k // 3).loss(f[1, 2]) - ours.loss(f)[1, 2]).abs() <= 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_precisions(dtype):
    for k, m in ((4, 2), (10, 3)):
        sample, f = random_sample(k, 14, batch=(6,), dtype=dtype)
        double = replace(sample, log_p=sample.log_p.double(), log_rest=sample.log_rest.double())
        ours, exact_value = swor.best_of(sample, m), swor.best_of(double, m)
        limit = 2e-5 if dtype == torch.float32 else 0.02
        for value, target in (
            (ours.mean(f), exact_value.mean(f.double())),
            (ours.loss(f), exact_value.loss(f.double())),
            (ours.variance(f), exact_value.variance(f.double())),
        ):
            assert value.dtype == dtype
            assert (value.double() - target).abs().max() <= limit


@pytest.mark.parametrize("k, m", [(4, 2), (10, 3)])
def test_a_whole_loss_compiles_without_a_break(k, m):
    def loss(logits, values):
        sample = swor.gumbel_top_k(logits.log_softmax(-1), k)
        estimate = swor.best_of(sample, m)
        return estimate.loss(values).mean() + 0.0 * estimate.mean(values).mean()

    logits = torch.randn(5, 30, generator=seeded(), dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    value = compiled(logits, torch.ones(5, k, dtype=torch.float64))
    value.backward()
    assert (value - 1.0).abs() <= 1e-12  # weights sum to 1
    assert logits.grad.abs().max() <= 1e-12  # and a constant has no gradient


@pytest.mark.parametrize("k, m", [(4, 2), (10, 3)])
def test_compiled_and_eager_agree(k, m):
    sample, f = random_sample(k, 14, batch=(3,))

    def loss(log_p, log_rest, values):
        return swor.best_of(
            swor.Sample(values, log_p, log_rest, scheme="without_replacement"), m
        ).loss(values)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    arguments = (sample.log_p, sample.log_rest, f)
    torch.testing.assert_close(compiled(*arguments), loss(*arguments), rtol=0.0, atol=1e-13)


def test_it_is_an_average_of_the_given_values():
    for k, m in ((4, 2), (12, 5)):
        sample, f = random_sample(k, 30, batch=(50,), scale=3.0)
        mean = swor.best_of(sample, m).mean(f)
        assert (mean <= f.amax(-1) + 1e-12).all() and (mean >= f.amin(-1) - 1e-12).all()


def test_without_the_mass_outside_it_is_found():
    sample, f = random_sample(4, 9)
    without = replace(sample, log_rest=None)
    assert (swor.best_of(sample, 2).mean(f) - swor.best_of(without, 2).mean(f)).abs() <= 1e-12


# Errors.


def test_other_schemes_are_refused():
    log_probs = torch.tensor([0.5, 0.3, 0.2]).log()
    with pytest.raises(ValueError, match=r"best_of was given .* 'with_replacement'.*gumbel_top_k"):
        swor.best_of(swor.with_replacement(log_probs, 2), 1)


def test_numbers_of_draws_that_are_refused():
    sample, _ = random_sample(3, 6)
    with pytest.raises(ValueError, match="k = 3 outcomes; expected at least 4 for the best of"):
        swor.best_of(sample, 4)
    with pytest.raises(ValueError, match="m is 0; expected at least 1"):
        swor.best_of(sample, 0)
    with pytest.raises(TypeError, match=r"m is 1\.5; expected an integer"):
        swor.best_of(sample, 1.5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_no_numbers_are_refused(bad):
    sample, f = random_sample(3, 6)
    f[1] = bad
    ours = swor.best_of(sample, 1)
    for method in (ours.mean, ours.loss, ours.variance):
        with pytest.raises(
            ValueError, match="f contains NaN or an infinite number; expected a finite number"
        ):
            method(f)


def test_values_that_do_not_go_with_the_sample_are_refused():
    sample, f = random_sample(3, 6)
    with pytest.raises(ValueError, match=r"f has shape \(2,\); expected \(3,\)"):
        swor.best_of(sample, 2).mean(f[:2])
    with pytest.raises(
        TypeError, match=r"f has dtype torch\.float32 and the sample torch\.float64"
    ):
        swor.best_of(sample, 2).loss(f.float())
    with pytest.raises(ValueError, match=r"log_p has shape \(2,\)"):
        swor.best_of(sample, 2).loss(f, log_p=sample.log_p[:2])
    with pytest.raises(ValueError, match="log_p contains NaN"):
        swor.best_of(sample, 2).loss(f, log_p=sample.log_p * torch.nan)


def test_the_exact_best_of_a_million_draws():
    """Probabilities in float32 sum to 1 up to rounding, which a power of a million would show."""
    logits = torch.linspace(-2.0, 2.0, 5, requires_grad=True)
    best = swor.exact_best_of(lambda x: x.float(), Categorical(logits=logits), 10**6)
    assert best.dtype == torch.float32 and best.item() == pytest.approx(4.0, rel=1e-6)
    best.backward()
    assert logits.grad.abs().max() < 1e-3


def test_a_variance_in_float32_is_not_negative():
    for seed in range(100, 140):
        g = torch.Generator().manual_seed(seed)
        log_probs = (4.0 * torch.randn(50, generator=g)).log_softmax(-1)
        sample = swor.gumbel_top_k(log_probs, 8, generator=g)
        f = torch.rand(8, generator=g)
        for m in (1, 2, 4):
            assert swor.best_of(sample, m).variance(f) >= 0.0
        single, murthy = swor.best_of(sample, 1).variance(f), swor.murthy_variance(sample, f)
        assert torch.equal(single, murthy)


def test_the_ratio_of_two_policies_is_that_of_their_log_probabilities():
    """Log-probabilities in half precision do not sum to 1 exactly, which must not change the ratio."""
    log_q = torch.tensor([0.4, 0.3], dtype=torch.float64).log() + 0.1
    log_rest = torch.tensor(0.3, dtype=torch.float64).log() + 0.1
    sample = swor.Sample(torch.arange(2), log_q, log_rest, scheme="without_replacement")
    target, f = (
        torch.tensor([0.2, 0.5], dtype=torch.float64).log(),
        torch.tensor([1.0, 2.0]).double(),
    )
    weights = swor.unordered_set(sample)
    expected = weights.weight * (target - log_q).exp()
    one_by_one = torch.func.vmap(lambda log_p: weights.off_policy(log_p).weight)(target[None])
    torch.testing.assert_close(weights.off_policy(target).weight, expected)
    torch.testing.assert_close(one_by_one[0], expected)
    best = swor.best_of(sample, 1).loss(f, log_p=target)
    torch.testing.assert_close(best, weights.loss(f, log_p=target))


def test_a_policy_that_is_too_far_away_is_refused():
    """Its weights overflow; the unordered set estimator says the same."""
    log_p = torch.tensor([-100.0, -101.0])
    sample = swor.Sample(torch.arange(2), log_p, torch.tensor(0.0), scheme="without_replacement")
    new, f = torch.tensor([-3.0, -4.0]), torch.ones(2)
    for loss in (
        swor.unordered_set(sample).loss,
        swor.best_of(sample, 1).loss,
        swor.best_of(sample, 2).loss,
        swor.log_success(sample, 1).loss,
    ):
        with pytest.raises(ValueError, match=r"e\^97 times as probable .* nearer to each other"):
            loss(f, log_p=new)
    assert swor.best_of(sample, 2).loss(f, log_p=log_p + 1).isfinite()


def test_a_value_of_lower_precision_does_not_lower_that_of_the_estimate():
    sample, f = random_sample(5, 8, (3,), torch.float32)
    half = f.bfloat16()
    independent_sample = swor.with_replacement(torch.zeros(3, 8).log_softmax(-1), 5)
    for estimate in (
        swor.best_of(sample, 2).mean(half),
        swor.best_of(sample, 2).loss(half),
        swor.best_of(sample, 1).variance(half),
        swor.best_of(sample, 2).variance(half),
        swor.log_success(sample, 2).loss((half > 0).bfloat16()),
        swor.best_of_independent(independent_sample, 2).loss(half),
        swor.murthy_variance(sample, half),
    ):
        assert estimate.dtype == torch.float32


def test_the_variance_of_a_sample_whose_probabilities_are_rounded():
    """They sum to more than 1 in double precision, but not in that of the sample."""
    log_p = torch.tensor([0.6, 0.3, 0.1 + 2e-5]).log()
    for given in (log_p, log_p.bfloat16()):
        sample = swor.Sample(torch.arange(3), given, scheme="without_replacement")
        f = torch.tensor([1.0, 2.0, 4.0])
        assert swor.murthy_variance(sample, f).abs() < 1e-6
        assert swor.best_of(sample, 1).variance(f).abs() < 1e-6


def test_any_tensor_may_be_that_of_a_vmap():
    sample, f = random_sample(12, 40)
    rests = sample.log_rest + torch.tensor([0.0, -0.1], dtype=torch.float64)
    news = sample.log_p + 0.1 * torch.randn(2, 12, generator=seeded(), dtype=torch.float64)

    def at_rest(log_rest):
        return swor.best_of(replace(sample, log_rest=log_rest), 2).mean(f)

    def at_new(log_p):
        return swor.best_of(sample, 2).loss(f, log_p=log_p)

    for function, given in ((at_rest, rests), (at_new, news)):
        apart = torch.stack([function(x) for x in given])
        assert torch.allclose(torch.func.vmap(function)(given), apart, rtol=1e-12, atol=0)
