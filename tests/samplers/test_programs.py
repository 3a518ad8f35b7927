"""Distinct runs of programs: their law, what is left, and when to stop."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import permutations, product
from threading import Thread

import pytest
import torch
from problems import chi_square, log_probabilities, seeded
from scripted_picks import outcomes

import swor

PICK = "swor.samplers._tree.pick_child"
ROOT = log_probabilities(3, seed=1)
SECOND = log_probabilities(2, seed=3)
THIRD = log_probabilities(2, seed=4)


def program(choose):
    """One, two or three choices: five runs in all."""
    first = choose(ROOT)
    if first != 1:
        return (first,)
    if choose(SECOND) == 1:
        return (1, 1)
    return (1, 0, choose(THIRD))


LAW = {
    (0,): ROOT[0],
    (2,): ROOT[2],
    (1, 1): ROOT[1] + SECOND[1],
    (1, 0, 0): ROOT[1] + SECOND[0] + THIRD[0],
    (1, 0, 1): ROOT[1] + SECOND[0] + THIRD[1],
}
LOG_P = torch.stack(list(LAW.values()))
COST = dict(zip(LAW, torch.randn(len(LAW), generator=seeded(9)).tolist(), strict=True))
EXACT = sum(COST[x] * LAW[x].exp().item() for x in LAW)


def drawn(k, generator=None):
    runs = swor.DistinctRuns(program, cost=COST.get, generator=generator)
    runs.draw(k)
    return runs


def log_mass_outside(keys):
    others = [LAW[x] for x in LAW if x not in keys]
    return torch.stack(others).logsumexp(0) if others else torch.tensor(-torch.inf).double()


def ordered_law(k):
    """The probability of every ordered sample of k runs."""
    log_p = {
        b: swor.log_prob_ordered(torch.stack([LAW[x] for x in b]), log_mass_outside(b))
        for b in permutations(LAW, k)
    }
    return {b: p.exp().item() for b, p in log_p.items()}


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_every_ordered_sample_has_exactly_its_probability(k):
    law = defaultdict(float)
    for probability, runs in outcomes(lambda: drawn(k), PICK):
        law[tuple(runs.results)] += probability
    expected = ordered_law(k)
    assert set(law) == set(expected)
    assert max(abs(law[b] - expected[b]) for b in law) <= 1e-12


@pytest.mark.parametrize("k", [2, 3])
def test_frequencies_are_those_of_gumbel_top_k(k):
    draws, keys = 3000, list(LAW)
    generator = seeded()
    own = Counter(tuple(drawn(k, generator).results) for _ in range(draws))
    gumbel = swor.gumbel_top_k(LOG_P.expand(draws, len(LAW)), k, generator=seeded(1))
    other = Counter(tuple(keys[i] for i in row) for row in gumbel.value.tolist())
    for observed in (own, other):
        assert chi_square(observed, ordered_law(k), draws) > 1e-3


@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_the_sample_is_that_of_the_runs(k):
    runs = drawn(k, seeded(3))
    sample = runs.sample()
    assert sample.scheme == swor.Scheme.WITHOUT_REPLACEMENT and sample.k == runs.k == k
    for row, result in zip(sample.value.tolist(), runs.results, strict=True):
        assert tuple(row) == result + (-1,) * (len(row) - len(result))
    log_p = torch.stack([LAW[x] for x in runs.results])
    assert torch.allclose(sample.log_p, log_p, rtol=0, atol=1e-14)
    assert torch.allclose(sample.log_rest, log_mass_outside(runs.results), rtol=0, atol=1e-12)
    assert runs.sample() is sample
    runs = drawn(1, seeded(3))
    for _ in range(k - 1):
        runs.draw()
    assert torch.equal(runs.sample().log_p, sample.log_p)


def test_estimates_are_unbiased_at_any_fixed_number_of_runs():
    for k in (1, 2, 3, 4):
        mean = variance = spread = 0.0
        for probability, runs in outcomes(lambda k=k: drawn(k), PICK):
            estimate = float(swor.unordered_set(runs.sample()).mean(runs.costs()))
            mean += probability * estimate
            spread += probability * (estimate - EXACT) ** 2
            variance += probability * (runs.standard_error() ** 2 if k > 1 else math.nan)
        assert abs(mean - EXACT) <= 1e-12
        assert k == 1 or abs(variance - spread) <= 1e-12


def test_kappa_is_the_next_in_the_race():
    generator, times, expected = seeded(), [], []
    for _ in range(2000):
        sample = drawn(2, generator).sample()
        rest = sample.log_rest.exp()
        expected.append(1.0 + 1.0 / (rest + sample.log_p[1].exp()) + 1.0 / rest)
        times.append(torch.exp(-sample.kappa))
    difference = torch.stack(times) - torch.stack(expected)
    assert abs(difference.mean() / difference.std()) * math.sqrt(2000) < 4
    runs = drawn(5)
    assert runs.sample().kappa == -torch.inf


def test_gradients_flow_through_the_log_probabilities():
    logits = torch.randn(3, generator=seeded(), dtype=torch.float64).requires_grad_()

    def coins(choose):
        log_probs = logits.log_softmax(-1)
        return float(choose(log_probs) + 10 * choose(log_probs))

    runs = swor.DistinctRuns(coins, generator=seeded())
    runs.draw(5)
    sample = runs.sample()
    again = logits.log_softmax(-1)[sample.value].sum(-1)
    assert torch.equal(sample.log_p, again)
    weight = torch.arange(5.0, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((x * weight).sum(), logits) for x in (sample.log_p, again))
    assert torch.allclose(ours[0], theirs[0], rtol=0, atol=1e-14)
    runs = swor.DistinctRuns(coins, generator=seeded())
    runs.draw(9)
    loss = swor.unordered_set(runs.sample()).loss(runs.costs())
    (gradient,) = torch.autograd.grad(loss, logits)
    exact = 11.0 * (torch.arange(3.0) * logits.softmax(-1)).sum()
    (expected,) = torch.autograd.grad(exact, logits)
    assert torch.allclose(gradient, expected, rtol=0, atol=1e-12)


def test_costs_may_carry_gradient():
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    runs = swor.DistinctRuns(lambda choose: scale * choose(ROOT))
    runs.draw(3)
    loss = swor.unordered_set(runs.sample()).loss(runs.costs())
    (gradient,) = torch.autograd.grad(loss, scale)
    assert torch.allclose(gradient, (torch.arange(3.0) * ROOT.exp()).sum(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("depth", [1, 3])
def test_what_is_left_does_not_cancel(depth):
    """All of a thousand runs but one, with probabilities from 1 to 1e-30."""
    n = round(1000 ** (1 / depth))
    steep = torch.linspace(0.0, -30.0 * math.log(10.0) / depth, n, dtype=torch.float64)
    steep = steep.log_softmax(-1)
    runs = swor.DistinctRuns(
        lambda choose: tuple(choose(steep) for _ in range(depth)), generator=seeded()
    )
    runs.draw(999)
    assert len(set(runs.results)) == 999
    (last,) = set(product(range(n), repeat=depth)) - set(runs.results)
    expected = sum(steep[i].item() for i in last)
    assert abs(math.expm1(runs.log_rest - expected)) <= 1e-12
    assert runs.sample().log_rest.item() == runs.log_rest
    runs.draw()
    assert runs.exhausted and runs.results[-1] == last


def test_an_exhausted_program_ends():
    runs = drawn(3)
    with pytest.raises(ValueError, match=r"n is 4, but the program has only 5 different runs"):
        runs.draw(4)
    assert runs.k == 5 and runs.exhausted and runs.sample().log_rest == -torch.inf
    runs.draw_until(coverage=1.0)
    assert runs.k == 5
    with pytest.raises(ValueError, match="expected n <= 0"):
        runs.draw()
    estimate = swor.unordered_set(runs.sample()).mean(runs.costs())
    assert abs(float(estimate) - EXACT) <= 1e-12


def test_a_program_without_choices_has_one_run():
    runs = swor.DistinctRuns(lambda choose: 3.0)
    runs.draw()
    assert runs.exhausted and runs.sample().value.shape == (1, 0)
    assert swor.unordered_set(runs.sample()).mean(runs.costs()) == 3.0


def test_masked_options_are_never_taken():
    masked = torch.tensor([-torch.inf, math.log(0.25), -torch.inf, math.log(0.75)])
    runs = swor.DistinctRuns(lambda choose: choose(masked))
    runs.draw_until(coverage=1.0)
    assert sorted(runs.results) == [1, 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision_follows_the_program(dtype):
    log_probs = torch.tensor([0.5, 0.25, 0.25]).log().to(dtype)
    runs = swor.DistinctRuns(lambda choose: choose(log_probs) + choose(log_probs))
    runs.draw(3)
    working = torch.float64 if dtype == torch.float64 else torch.float32
    sample = runs.sample()
    assert {x.dtype for x in (sample.log_p, sample.log_rest, sample.kappa, runs.costs())} == {
        working
    }


def test_the_same_seed_gives_the_same_runs():
    assert drawn(5, seeded(3)).results == drawn(5, seeded(3)).results
    assert drawn(5, seeded(3)).results != drawn(5, seeded(4)).results


def test_a_program_that_fails_leaves_the_others_valid():
    attempts = iter(range(100))

    def fails(choose):
        result = program(choose)
        if next(attempts) == 2:
            raise OSError("no more disk")
        return result

    runs = swor.DistinctRuns(fails, generator=seeded())
    runs.draw(2)
    with pytest.raises(OSError, match="no more disk"):
        runs.draw()
    runs.draw(3)
    assert set(runs.results) == set(LAW) and runs.exhausted


# Promises


def test_other_probabilities_at_the_same_place_are_refused():
    steps = iter(range(100))

    def drifts(choose):
        return choose(ROOT), choose((ROOT * (1 + next(steps))).log_softmax(-1))

    runs = swor.DistinctRuns(drifts, generator=seeded())
    with pytest.raises(ValueError, match=r"other probabilities after the choices \[\d\]"):
        runs.draw(9)


def test_probabilities_in_another_order_are_refused():
    steps = iter(range(100))
    runs = swor.DistinctRuns(lambda choose: choose(ROOT.roll(next(steps))))
    with pytest.raises(ValueError, match=r"other probabilities after the choices \[\]"):
        runs.draw(2)


def test_rounding_is_not_another_probability():
    steps = iter(range(100))
    generator = seeded()

    def noisy(choose):
        noise = 1e-6 * torch.randn(3, generator=generator)
        return next(steps), choose((ROOT.float() + noise).log_softmax(-1))

    runs = swor.DistinctRuns(noisy, generator=seeded())
    runs.draw(3)
    assert runs.exhausted


def test_another_number_of_options_is_refused():
    steps = iter(range(100))
    uniform = [torch.zeros(n).log_softmax(-1) for n in range(2, 9)]
    runs = swor.DistinctRuns(lambda choose: choose(uniform[next(steps)]))
    with pytest.raises(ValueError, match=r"3 options after the choices \[\].*was offered 2"):
        runs.draw(2)


def test_a_run_that_ends_where_another_went_on_is_refused():
    steps = iter(range(100))

    def shortens(choose):
        first = choose(torch.zeros(1))
        return choose(ROOT) if next(steps) == 0 else first

    runs = swor.DistinctRuns(shortens)
    with pytest.raises(ValueError, match=r"ended after the choices \[0\].*among 3 options"):
        runs.draw(2)


def test_what_is_left_may_not_disappear():
    """The only option that is left becomes impossible, by less than the tolerance."""
    rare = torch.tensor([0.0, -30.0])
    steps = iter([rare, torch.tensor([0.0, -torch.inf])])
    runs = swor.DistinctRuns(lambda choose: choose(next(steps)), generator=seeded())
    with pytest.raises(ValueError, match=r"no option of positive probability is left"):
        runs.draw(2)


def test_choose_belongs_to_its_run():
    kept = []
    runs = swor.DistinctRuns(lambda choose: kept.append(choose) or choose(ROOT))
    runs.draw()
    with pytest.raises(RuntimeError, match="after its run had ended"):
        kept[0](ROOT)


@pytest.mark.parametrize(
    "log_probs, error, message",
    [
        (torch.tensor([0.0, torch.nan]), ValueError, "NaN"),
        (torch.tensor([0.0, 0.0]), ValueError, "sum to 2"),
        (torch.tensor([-torch.inf, -torch.inf]), ValueError, "sum to 0"),
        (torch.tensor([0, 1]), TypeError, "floating point"),
        (torch.zeros(1, 2), ValueError, r"expected \(n,\)"),
        (torch.zeros(()), ValueError, r"shape \(\)"),
        (torch.empty(0), ValueError, r"shape \(0,\)"),
    ],
)
def test_what_is_no_distribution_is_refused(log_probs, error, message):
    runs = swor.DistinctRuns(lambda choose: choose(log_probs))
    with pytest.raises(error, match=message):
        runs.draw()


def test_costs_are_numbers():
    runs = swor.DistinctRuns(program)
    with pytest.raises(ValueError, match="no run yet"):
        runs.sample()
    runs.draw()
    with pytest.raises(TypeError, match="give DistinctRuns a function cost"):
        runs.costs()


# When to stop


def stopped(**limits):
    runs = swor.DistinctRuns(program, cost=COST.get)
    runs.draw_until(**limits)
    return runs


def test_limits_are_reached_and_not_passed():
    for seed in range(20):
        runs = swor.DistinctRuns(program, cost=COST.get, generator=seeded(seed))
        runs.draw_until(coverage=0.6)
        mass = [LAW[x].exp().item() for x in runs.results]
        assert sum(mass[:-1]) < 0.6 <= sum(mass)
        runs.draw_until(at_most=runs.k + 1)
        assert runs.k == len(mass) + 1
        runs.draw_until(at_most=1)
        assert runs.k == len(mass) + 1
        runs.draw_until(standard_error=0.05, at_least=2)
        assert runs.exhausted or runs.standard_error() <= 0.05


def test_no_standard_error_is_asked_of_fewer_runs_than_told():
    runs = swor.DistinctRuns(lambda choose: 0.0 * choose(torch.zeros(50).log_softmax(-1)))
    runs.draw_until(standard_error=0.1)
    assert runs.k == 10
    runs = swor.DistinctRuns(lambda choose: 0.0 * choose(torch.zeros(50).log_softmax(-1)))
    runs.draw_until(standard_error=0.1, at_least=20, extra=3)
    assert runs.k == 23


LIMITS = [
    {"coverage": 0.5},
    {"coverage": 0.8},
    {"standard_error": 0.2, "at_least": 2},
    {"standard_error": 0.2, "at_least": 3, "coverage": 0.7},
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_random_number_of_runs_biases_the_unordered_set_estimate(limits):
    """So that the documentation's warning stays true; the size is that on this program."""
    mean = 0.0
    for probability, runs in outcomes(lambda: stopped(**limits), PICK):
        mean += probability * float(swor.unordered_set(runs.sample()).mean(runs.costs()))
    assert 1e-3 < abs(mean - EXACT) < 0.3


@pytest.mark.parametrize("extra", [1, 2])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_extra_runs_make_any_limit_unbiased(limits, extra):
    """Given what the limits looked at, the sum-and-sample estimate of the others is unbiased."""
    mean = 0.0
    for probability, runs in outcomes(lambda: stopped(**limits, extra=extra), PICK):
        weights = swor.sum_and_sample(runs.sample(), m=extra)
        mean += probability * float(weights.mean(runs.costs()))
    assert abs(mean - EXACT) <= 1e-12


LOGITS = ROOT[:2].clone().requires_grad_()
PAIRS = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)


def pair(choose):
    """The cost of two coins that can be learnt: four runs."""
    log_probs = LOGITS.log_softmax(-1)
    return PAIRS[choose(log_probs) + choose(log_probs)].item()


def value_and_gradient(loss):
    return torch.cat([loss.detach().reshape(1), *torch.autograd.grad(loss, LOGITS)])


def assert_unbiased(experiment):
    """In value and in gradient, by going through all runs."""
    mean = sum(probability * found for probability, found in outcomes(experiment, PICK))
    p = LOGITS.softmax(-1)
    exact = (torch.stack([p[0] ** 2, 2.0 * p[0] * p[1], p[1] ** 2]) * PAIRS).sum()
    assert torch.allclose(mean, value_and_gradient(exact), rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    "rule", [swor.unordered_set, swor.sum_and_sample, swor.raj, swor.single_sample]
)
def test_rules_are_unbiased_on_runs(rule, k):
    def estimate():
        runs = swor.DistinctRuns(pair)
        runs.draw(k)
        return value_and_gradient(rule(runs.sample()).loss(runs.costs()))

    assert_unbiased(estimate)


def test_extra_runs_leave_the_gradient_unbiased():
    def estimate():
        runs = swor.DistinctRuns(pair)
        runs.draw_until(standard_error=0.3, at_least=2, extra=1)
        return value_and_gradient(swor.sum_and_sample(runs.sample(), m=1).loss(runs.costs()))

    assert_unbiased(estimate)


@pytest.mark.parametrize(
    "limits, message",
    [
        ({}, "no limit"),
        ({"coverage": 0.0}, "coverage is 0.0"),
        ({"coverage": 1.5}, "coverage is 1.5"),
        ({"standard_error": 0.0}, "standard_error is 0.0"),
        ({"standard_error": 0.1, "at_least": 1}, "at_least is 1"),
        ({"at_most": 0}, "at_most is 0"),
        ({"at_most": 1, "extra": -1}, "extra is -1"),
    ],
)
def test_limits_make_sense(limits, message):
    with pytest.raises(ValueError, match=message):
        stopped(**limits)


def test_a_program_may_use_its_tensors_again():
    log_probs, result = torch.empty(2), torch.empty(1)

    def reusing(choose):
        log_probs.copy_(torch.tensor([0.9, 0.1]).log())
        first = choose(log_probs)
        log_probs.copy_(torch.tensor([0.2, 0.8]).log())
        return result.fill_(2 * first + choose(log_probs))

    runs = swor.DistinctRuns(reusing, generator=seeded())
    runs.draw(4)
    sample = runs.sample()
    expected = torch.tensor([0.18, 0.72, 0.02, 0.08])[runs.costs().long()]
    assert sorted(runs.costs().tolist()) == [0.0, 1.0, 2.0, 3.0]
    torch.testing.assert_close(sample.log_p.exp(), expected)


def test_a_draw_during_a_run_is_refused():
    def nested(choose):
        first = choose(ROOT)
        runs.draw()
        return first

    runs = swor.DistinctRuns(nested)
    with pytest.raises(RuntimeError, match="while a run of the same object was under way"):
        runs.draw()
    assert runs.k == 0


def test_a_draw_by_another_thread_during_a_run_is_refused():
    errors = []

    def draw():
        try:
            runs.draw()
        except RuntimeError as error:
            errors.append(str(error))

    def slow(choose):
        other = Thread(target=draw)
        other.start()
        other.join()
        return choose(ROOT)

    runs = swor.DistinctRuns(slow)
    runs.draw()
    assert runs.k == 1 and len(errors) == 1 and "another thread" in errors[0]


def test_a_cost_is_that_of_its_own_run():
    """A program may use the same objects for every result."""
    shared = {"choice": None}

    def program(choose):
        shared["choice"] = choose(torch.tensor([0.5, 0.3, 0.2]).log())
        return shared

    runs = swor.DistinctRuns(program, cost=lambda found: float(found["choice"]), generator=seeded())
    runs.draw(3)
    assert runs.costs().tolist() == runs.sample().value[:, 0].tolist()
    assert sorted(runs.costs().tolist()) == [0.0, 1.0, 2.0]


def test_a_cost_that_fails_leaves_its_run_undone():
    def cost(choice):
        if choice == 1 and not allowed:
            raise RuntimeError("no simulator")
        return float(choice)

    allowed = False
    coin = torch.tensor([0.5, 0.5]).log()
    runs = swor.DistinctRuns(lambda choose: choose(coin), cost=cost, generator=seeded())
    with pytest.raises(RuntimeError, match="no simulator"):
        runs.draw(2)
    allowed = True
    runs.draw(2 - runs.k)
    assert sorted(runs.costs().tolist()) == [0.0, 1.0] and runs.exhausted


def test_costs_may_be_numbers_of_numpy():
    np = pytest.importorskip("numpy")
    for number in (np.float32(1), np.int64(1), np.array(1.0), np.True_):
        runs = swor.DistinctRuns(lambda choose, number=number: number)
        runs.draw()
        assert runs.costs().tolist() == [1.0]
    several = swor.DistinctRuns(lambda choose: np.ones(2))
    several.draw()
    with pytest.raises(TypeError, match="expected a number"):
        several.costs()
