"""Bad input: one clear error each, that says what was given, what was expected and what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
import torch
from problems import log_probabilities, seeded
from torch.distributions import Bernoulli, Categorical, Normal, OneHotCategorical

import swor

LOG_PROBS = log_probabilities(2, 5)
DISTINCT = swor.gumbel_top_k(LOG_PROBS, 3, generator=seeded())
INDEPENDENT = swor.with_replacement(LOG_PROBS, 3, generator=seeded())
BEAMS = swor.beam_search(swor.Factorized(log_probabilities(2, 3, 4)), 3)
TOP = swor.top_k_and_sample(LOG_PROBS, 3, generator=seeded())
COST = torch.zeros(2, 3, dtype=torch.float64)
NAN = torch.full((2, 5), torch.nan)
GRADIENT = torch.zeros(2, requires_grad=True)


def with_entry(value, index=(0, 1)):
    bad = LOG_PROBS.clone()
    bad[index] = value
    return bad


class Coins:
    """Three tosses of a coin, with mistakes."""

    def __init__(
        self, end=None, rows=lambda beams: torch.full((beams, 2), 0.5).log(), length=3, pair=True
    ):
        self.end, self.rows, self.length, self.pair = end, rows, length, pair

    def start(self):
        return 1

    def step(self, state):
        return (self.rows(state), state) if self.pair else self.rows(state)

    def select(self, state, parents, symbols):
        return parents.shape[-1]


class CoinsInOnePass(Coins):
    def log_prob(self, value):
        return torch.full(value.shape, 0.5).log()


def half_masked(beams):
    """Log-probabilities of a coin; of two beams, the first has no symbol that may follow."""
    rows = torch.full((beams, 2), 0.5).log()
    return rows if beams == 1 else rows.masked_fill(torch.eye(beams, 1) > 0, -torch.inf)


EXHAUSTED = swor.DistinctSequences(Coins())
EXHAUSTED.draw(8)

BAD = {
    "k is 0": (lambda: swor.gumbel_top_k(LOG_PROBS, 0), "k is 0; expected at least 1"),
    "k is a float": (
        lambda: swor.gumbel_top_k(LOG_PROBS, 2.0),
        "k is 2.0; expected an integer",
    ),
    "k is a bool": (
        lambda: swor.gumbel_top_k(LOG_PROBS, True),
        "k is True; expected an integer",
    ),
    "k too large": (lambda: swor.gumbel_top_k(LOG_PROBS, 6), "only 5 outcomes.*replacement"),
    "k too large for the mask": (
        lambda: swor.gumbel_top_k(with_entry(-torch.inf).log_softmax(-1), 5),
        "only 4 outcomes of positive probability.*expected k <= 4",
    ),
    "k too large for a product": (
        lambda: swor.stochastic_beam_search(swor.Factorized(log_probabilities(2, 2)), 5),
        "k is 5, but there are only 4 outcomes",
    ),
    "k too large for beams": (
        lambda: swor.beam_search(swor.Factorized(log_probabilities(2, 2)), 5),
        "k is 5, but there are only 4 outcomes",
    ),
    "k too large for a masked product": (
        lambda: swor.stochastic_beam_search(
            swor.Factorized(torch.tensor([[0.0, -torch.inf], [0.5, 0.5]]).log_softmax(-1)), 3
        ),
        "only 2 outcomes of positive probability",
    ),
    "top k too large": (lambda: swor.top_k_and_sample(LOG_PROBS, 6), "only 5 outcomes"),
    "m too large": (
        lambda: swor.top_k_and_sample(LOG_PROBS, 3, m=4),
        "m is 4; expected from 1 to 3",
    ),
    "m unknown": (
        lambda: swor.top_k_and_sample(LOG_PROBS, 3, m="all"),
        "m is 'all'; expected an integer, or 'auto'",
    ),
    "summed of a wrong shape": (
        lambda: swor.top_k_and_sample(LOG_PROBS, 3, summed=torch.zeros(2, 3, dtype=torch.long)),
        "summed has shape .2, 3.; expected .2, 2.",
    ),
    "summed of lists": (
        lambda: swor.top_k_and_sample(LOG_PROBS, 3, summed=[[0, 1], [2, 3]]),
        "summed is a list; expected a tensor",
    ),
    "summed that is no outcome": (
        lambda: swor.top_k_and_sample(LOG_PROBS, 2, summed=torch.tensor([[0], [5]])),
        "summed contains .* a number that is no outcome; expected .* from 0 to 4",
    ),
    "summed twice": (
        lambda: swor.top_k_and_sample(LOG_PROBS, 3, summed=torch.zeros(2, 2, dtype=torch.long)),
        "summed contains an outcome twice",
    ),
    "a distribution": (
        lambda: swor.gumbel_top_k(torch.distributions.Categorical(logits=LOG_PROBS), 2),
        r"log_probs is the distribution Categorical; expected a tensor.*sample\(dist, k\)",
    ),
    "NaN in the sampler": (lambda: swor.gumbel_top_k(NAN, 2), "sum to nan; expected 1"),
    "NaN in another": (lambda: swor.with_replacement(NAN, 2), "sum to nan; expected 1"),
    "NaN in a third": (lambda: swor.top_k_and_sample(NAN, 2), "sum to nan; expected 1"),
    "NaN in a product": (
        lambda: swor.stochastic_beam_search(swor.Factorized(NAN), 2),
        "sum to nan; expected 1",
    ),
    "+inf": (lambda: swor.gumbel_top_k(with_entry(torch.inf), 2), "sum to .*; expected 1"),
    "unnormalised": (
        lambda: swor.gumbel_top_k(torch.zeros(3), 2),
        "sum to 3; expected 1.*log_softmax",
    ),
    "unnormalised, large": (
        lambda: swor.gumbel_top_k(torch.zeros(3000), 2),
        "sum to 3000; expected 1.*log_softmax",
    ),
    "unnormalised, independent": (
        lambda: swor.with_replacement(torch.zeros(3), 2),
        "sum to 3; expected 1.*log_softmax",
    ),
    "unnormalised product": (
        lambda: swor.stochastic_beam_search(swor.Factorized(torch.zeros(20, 4)), 2),
        "sum to 4; expected 1",
    ),
    "unnormalised beams": (
        lambda: swor.beam_search(swor.Factorized(torch.zeros(2, 4)), 2),
        "sum to 10; expected 1",
    ),
    "unnormalised set": (
        lambda: swor.leave_one_out(torch.tensor([0.7, 0.7]).log()),
        "sum to 1.4; expected at most 1.*log_softmax",
    ),
    "an outcome twice in a sample made by hand": (
        lambda: swor.unordered_set(
            swor.Sample(
                torch.zeros(2), torch.tensor([0.9, 0.9]).log(), scheme="without_replacement"
            )
        ),
        "sum to 1.8; expected at most 1. Give outcomes that all differ",
    ),
    "a reward in double precision beside half precision": (
        lambda: swor.advantages(torch.tensor([-1.0, -1.0]).bfloat16(), torch.ones(2).double()),
        r"dtype torch.float64 and log_p torch.bfloat16; .* with reward.to\(torch.float32\)",
    ),
    "a control variate without its mean": (
        lambda: swor.controlled(swor.unordered_set(DISTINCT), COST, COST),
        r"control is a tensor of shape \(2, 3\); expected a KnownMean.*swor.additive",
    ),
    "a context that a network was not made for": (
        lambda: swor.AdditiveTable(1, 5, context=7)(torch.zeros(2, 3)),
        r"given \(2, 3\); expected \(…, 7\).*Pass the context",
    ),
    "a control variate for another size": (
        lambda: swor.ControlVariate(2, 3)(torch.zeros(4, 1, 3, 5)),
        r"given \(4, 1, 15\); expected \(…, 6\).*Make another",
    ),
    "whole numbers": (
        lambda: swor.gumbel_top_k(torch.zeros(3, dtype=torch.long), 2),
        "log_probs has dtype torch.int64; expected.*floating point",
    ),
    "no axis": (lambda: swor.gumbel_top_k(torch.tensor(0.0), 1), "shape .*; expected .*batch, n"),
    "no outcomes": (lambda: swor.leave_one_out(torch.zeros(3, 0)), "shape .*; expected .*batch, n"),
    "a product of one axis": (lambda: swor.Factorized(torch.zeros(3)), "expected .*batch, n, c"),
    "NaN in a set": (lambda: swor.leave_one_out(NAN), "sum to nan"),
    "NaN in the rest": (
        lambda: swor.leave_one_out(LOG_PROBS[:, :2], torch.full((2,), torch.nan).double()),
        "log_p or log_rest contains NaN",
    ),
    "rest of a wrong shape": (
        lambda: swor.leave_one_out(LOG_PROBS[:, :2], torch.zeros(3).double()),
        r"log_rest has shape .3,.; expected .2,.",
    ),
    "rest of another dtype": (
        lambda: swor.leave_one_out(LOG_PROBS[:, :2], torch.zeros(2)),
        "log_rest has dtype torch.float32 and log_p torch.float64",
    ),
    "rest on another device": (
        lambda: swor.leave_one_out(LOG_PROBS[:, :2], torch.zeros(2, device="meta").double()),
        "log_rest is on meta and log_p on cpu",
    ),
    "unknown method": (
        lambda: swor.leave_one_out(LOG_PROBS[:, :2], method="guess"),
        "method is 'guess'; expected one of 'auto', 'subsets'",
    ),
    "too large for orderings": (
        lambda: swor.leave_one_out(log_probabilities(12)[:10], method="orderings"),
        "k is 10; expected at most 9.*auto",
    ),
    "cost of a wrong shape": (
        lambda: swor.unordered_set(DISTINCT).loss(torch.zeros(3).double()),
        r"cost has shape .3,.; expected .2, 3.",
    ),
    "cost of another dtype": (
        lambda: swor.unordered_set(DISTINCT).loss(COST.float()),
        "cost has dtype torch.float32 and the weights torch.float64.*Convert",
    ),
    "whole-number cost": (
        lambda: swor.unordered_set(DISTINCT).loss(COST.long()),
        "cost has dtype torch.int64 and the weights torch.float64.*Convert",
    ),
    "cost on another device": (
        lambda: swor.unordered_set(DISTINCT).loss(COST.to("meta")),
        "cost is on meta and the weights on cpu",
    ),
    "NaN cost": (lambda: swor.unordered_set(DISTINCT).loss(COST * torch.nan), "cost contains NaN"),
    "baseline of a wrong shape": (
        lambda: swor.unordered_set(DISTINCT).loss(COST, baseline=torch.zeros(2).double()),
        "baseline has shape .2,.; expected one that broadcasts",
    ),
    "unknown baseline": (
        lambda: swor.unordered_set(DISTINCT).loss(COST, baseline="mean"),
        "baseline is 'mean'; expected 'built-in'",
    ),
    "off-policy log_p of a wrong shape": (
        lambda: swor.unordered_set(DISTINCT).loss(COST, log_p=torch.zeros(2).double()),
        "log_p has shape",
    ),
    "too many summed": (lambda: swor.sum_and_sample(DISTINCT, m=4), "m is 4; expected from 1 to 3"),
    "variance of one": (
        lambda: swor.murthy_variance(swor.gumbel_top_k(LOG_PROBS, 1), COST[:, :1]),
        "k = 1; expected k >= 2",
    ),
    "sum that looks like 1": (
        lambda: swor.gumbel_top_k(LOG_PROBS + 2e-6, 2),
        "sum to 1 . 2.0e-06; expected 1, up to 1e-06 in torch.float64.*in the same precision",
    ),
    "float8": (
        lambda: swor.gumbel_top_k(LOG_PROBS.to(torch.float8_e4m3fn), 2),
        "log_probs has dtype torch.float8_e4m3fn; expected .*log_probs.float",
    ),
    "sparse": (
        lambda: swor.with_replacement(LOG_PROBS.to_sparse(), 2),
        "log_probs is sparse .torch.sparse_coo.; expected a dense tensor.*to_dense",
    ),
    "k of NumPy": (
        lambda: swor.gumbel_top_k(LOG_PROBS, numpy.int64(2)),
        r"k is a numpy.int64; expected an integer. Convert it with int.k",
    ),
    "k is a tensor": (
        lambda: swor.gumbel_top_k(LOG_PROBS, torch.tensor(2)),
        "k is a tensor of shape ..; expected an integer. Convert it with int.k",
    ),
    "a baseline of NumPy": (
        lambda: swor.unordered_set(DISTINCT).loss(COST, baseline=COST.numpy()),
        "baseline is a numpy.ndarray; expected 'built-in', a number .*torch.as_tensor",
    ),
    "no baseline": (
        lambda: swor.unordered_set(DISTINCT).loss(COST, baseline=None),
        "baseline is None; expected 'built-in', a number .0.0 means none.",
    ),
    "a tensor is no distribution": (
        lambda: swor.sample(LOG_PROBS, 2),
        r"the distribution is a tensor of shape .2, 5.; expected Categorical.*gumbel_top_k",
    ),
    "an end that is no symbol": (
        lambda: swor.stochastic_beam_search(Coins(end=2), 2),
        "the model has the end symbol 2 and 2 symbols; expected one of 0 to 1, or None",
    ),
    "an end that is no symbol, independent": (
        lambda: swor.ancestral_sample(Coins(end=-1), 2),
        "the model has the end symbol -1 and 2 symbols",
    ),
    "a step that forgets the beams": (
        lambda: swor.beam_search(Coins(rows=lambda beams: torch.zeros(3, 2)), 2),
        r"step returned log-probabilities of shape .3, 2.; expected .*batch, 1, symbols",
    ),
    "a step of another dtype": (
        lambda: swor.DistinctSequences(
            Coins(rows=lambda beams: torch.zeros(beams, 2).int())
        ).draw(),
        "log_probs has dtype torch.int32; expected .*floating point",
    ),
    "a tensor is no sample": (
        lambda: swor.unordered_set(LOG_PROBS),
        r"unordered_set was given a tensor of shape .2, 5.; expected a Sample. Draw it with gumbel",
    ),
    "a sample of integers": (
        lambda: swor.rloo(
            swor.Sample(torch.zeros(2), torch.tensor([-1, -2]), scheme="with_replacement")
        ),
        r"sample.log_p has dtype torch.int64; expected .*Convert it, .* sample.log_p.float",
    ),
    "a sample without an axis": (
        lambda: swor.rloo(
            swor.Sample(torch.zeros(()), torch.tensor(-1.0), scheme="with_replacement")
        ),
        r"sample.log_p has shape ..; expected .*batch, n.",
    ),
    "a loss of NaN": (
        lambda: swor.rloo(
            swor.Sample(torch.zeros(2), torch.full((2,), torch.nan), scheme="with_replacement")
        ).loss(torch.ones(2)),
        "log_p of the sample contains NaN",
    ),
    "log_q of another shape": (
        lambda: swor.deterministic_sum_and_sample(replace(TOP, log_q=TOP.log_q[0])),
        r"log_q has shape .3,.; expected .2, 3.",
    ),
    "log_q of NaN": (
        lambda: swor.deterministic_sum_and_sample(replace(TOP, log_q=TOP.log_q * torch.nan)),
        "log_p or log_q of the sample contains NaN",
    ),
    "a seed as a generator": (
        lambda: swor.gumbel_top_k(LOG_PROBS, 2, generator=3),
        "generator is an int; expected a torch.Generator, or None.*manual_seed",
    ),
    "a seed as a generator, antithetic": (
        lambda: swor.disarm(lambda x: x, Bernoulli(logits=torch.zeros(3)), 2, generator=3),
        "generator is an int; expected a torch.Generator",
    ),
    "a seed as a generator, of a copula": (
        lambda: swor.carms(lambda x: x, Bernoulli(logits=torch.zeros(3)), 2, generator=3),
        "generator is an int; expected a torch.Generator",
    ),
    "a seed as a generator, independent": (
        lambda: swor.with_replacement(LOG_PROBS, 2, generator=3),
        "generator is an int; expected a torch.Generator",
    ),
    "a step that returns no state": (
        lambda: swor.stochastic_beam_search(Coins(pair=False), 2),
        r"step returned a tensor of shape .1, 2.; expected a pair of log-probabilities and a state",
    ),
    "sequences of no symbols": (
        lambda: swor.ancestral_sample(Coins(length=0), 2),
        "the model has length 0; expected an integer, at least one symbol",
    ),
    "sequences of half a symbol": (
        lambda: swor.stochastic_beam_search(Coins(length=2.5), 2),
        "the model has length 2.5; expected an integer",
    ),
    "log-probabilities of symbols, not of sequences": (
        lambda: swor.stochastic_beam_search(CoinsInOnePass(), 2),
        r"log_prob.value. has shape .2, 3.; expected .2,.",
    ),
    "moments of a tensor": (
        lambda: swor.gradient_moments("rloo", torch.cos, LOG_PROBS, [GRADIENT]),
        r"the distribution is a tensor of shape .2, 5.; expected Categorical",
    ),
    "moments of an empty batch": (
        lambda: swor.gradient_moments(
            "rloo", torch.cos, Bernoulli(logits=GRADIENT[:0]), [GRADIENT]
        ),
        r"dist has the batch axes .0,. and no element; expected at least one",
    ),
    "a warm-up of a negative number of steps": (
        lambda: swor.gradient_moments(
            "rloo", torch.cos, Bernoulli(logits=GRADIENT), [GRADIENT], warm_up=-1
        ),
        "the number of warm-up steps is -1; expected 0 or more",
    ),
    "a dead end": (
        lambda: swor.stochastic_beam_search(Coins(rows=half_masked), 2),
        "sum to 0.25; expected 1.*Check whether a step of the model masks every symbol",
    ),
    "nothing left to draw": (
        lambda: EXHAUSTED.draw(),
        "only 0 sequences of positive probability besides the 8.*Stop drawing",
    ),
    "a sample of lists": (
        lambda: swor.rloo(swor.Sample([0], [-1.0], scheme="with_replacement")),
        "sample.log_p is a list; expected a tensor",
    ),
    "advantages of lists": (
        lambda: swor.advantages([-1.0], torch.ones(1)),
        "log_p is a list; expected a tensor",
    ),
    "a tensor is no model": (
        lambda: swor.stochastic_beam_search(LOG_PROBS, 2),
        r"the model is a tensor of shape .2, 5., which has no length.*SequenceModel.*Factorized",
    ),
    "a tensor is no model, independent": (
        lambda: swor.ancestral_sample(LOG_PROBS, 2),
        "the model is a tensor .*Factorized",
    ),
    "a tensor is no model, some at a time": (
        lambda: swor.DistinctSequences(LOG_PROBS).draw(),
        "the model is a tensor .*Factorized",
    ),
    "a stream without log-probabilities": (
        lambda: swor.distinct_from_stream([("a", None)], 1),
        "the log-probability of 'a' is None; expected a finite number",
    ),
    "a stream of outcomes alone": (
        lambda: swor.distinct_from_stream(["first", "second"], 1),
        "a draw is 'first'; expected a pair of an outcome and its log-probability",
    ),
    "rounds of outcomes alone": (
        lambda: swor.DistinctRounds(lambda missing, kept: [[7]], batch=1).draw(1),
        "a draw is 7; expected a pair of an outcome and its log-probability",
    ),
    "the negative of the log-probability of another policy": (
        lambda: swor.unordered_set(DISTINCT).loss(COST, log_p=-DISTINCT.log_p),
        "log_p contains .*; expected log-probabilities, at most 0. .*not its negative",
    ),
    "a sample made by hand with negated log-probabilities": (
        lambda: swor.rloo(
            swor.Sample(INDEPENDENT.value, -INDEPENDENT.log_p, scheme="with_replacement")
        ),
        "sample.log_p contains .*; expected log-probabilities, at most 0. .*not its negative",
    ),
    "probabilities of another policy": (
        lambda: swor.best_of(DISTINCT, 2).loss(COST, log_p=DISTINCT.log_p.exp()),
        "log_p contains .*; expected log-probabilities, at most 0",
    ),
    "variance of NaN": (
        lambda: swor.murthy_variance(DISTINCT, COST * torch.nan),
        "cost contains NaN",
    ),
    "a moving average of NaN": (
        lambda: swor.MovingAverage()(COST * torch.nan),
        "cost contains NaN",
    ),
    "a distribution of another kind": (
        lambda: swor.sample(Normal(0.0, 1.0), 2),
        "expected Categorical, OneHotCategorical, Bernoulli",
    ),
    "a function of the whole batch": (
        lambda: swor.reinforce_sampled_baseline(torch.sum, Bernoulli(logits=torch.zeros(3)), 2),
        r"cost has shape ..; expected .3, 2.",
    ),
    "a function that rounds": (
        lambda: swor.local_expectation(lambda x: x.long(), Bernoulli(logits=torch.zeros(3)), 2),
        r"cost has dtype torch.int64 .* with cost.to.torch.float32.",
    ),
    "a domain too large to enumerate": (
        lambda: swor.exact(
            torch.sum, torch.distributions.Independent(Categorical(logits=torch.zeros(30, 10)), 1)
        ),
        "10.30 outcomes; expected at most",
    ),
}


COSTS = {
    "numpy": (COST.numpy(), "a numpy.ndarray"),
    "list": (COST.tolist(), "a list"),
    "None": (None, "None"),
    "number": (1.0, "a float"),
}
USES = {
    "loss": lambda cost: swor.unordered_set(DISTINCT).loss(cost),
    "mean": lambda cost: swor.unordered_set(DISTINCT).mean(cost),
    "baseline": lambda cost: swor.unordered_set(DISTINCT).baseline(cost),
    "best_of": lambda cost: swor.best_of(DISTINCT, 2).loss(cost),
    "best_of_independent": lambda cost: swor.best_of_independent(INDEPENDENT, 2).mean(cost),
    "log_success": lambda cost: swor.log_success(DISTINCT, 2).loss(cost),
    "log_success_independent": lambda cost: swor.log_success_independent(INDEPENDENT, cost),
    "murthy_variance": lambda cost: swor.murthy_variance(DISTINCT, cost),
    "advantages": lambda cost: swor.advantages(DISTINCT.log_p, cost),
    "group_statistics": lambda cost: swor.group_statistics(DISTINCT, cost),
    "batch_mean": lambda cost: swor.batch_mean(cost),
    "MovingAverage": lambda cost: swor.MovingAverage()(cost),
    "exact": lambda cost: swor.exact(lambda x: cost, Categorical(logits=LOG_PROBS)),
    "exact_best_of": lambda cost: swor.exact_best_of(
        lambda x: cost, Categorical(logits=LOG_PROBS), 2
    ),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("use", USES)
def test_costs_that_are_no_tensor(use, cost):
    given, named = COSTS[cost]
    with pytest.raises(TypeError, match=rf"is {named}; expected a tensor.*torch.as_tensor\("):
        USES[use](given)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("name", swor.ESTIMATORS)
def test_functions_that_return_no_tensor(name, cost):
    dist = OneHotCategorical(logits=LOG_PROBS[:, :2])
    given, named = COSTS[cost]
    with pytest.raises(TypeError, match=f"is {named}; expected a tensor"):
        swor.ESTIMATORS[name].make(dist)(lambda x: given, dist, 2)


def test_the_sum_over_a_domain_needs_a_number_for_every_outcome():
    with pytest.raises(ValueError, match=r"f\(x\) has shape .2, 1.; expected .2, 5."):
        swor.exact(lambda x: torch.ones(2, 1), Categorical(logits=LOG_PROBS))


def test_a_step_without_costs_leaves_a_moving_average_as_it_is():
    average = swor.MovingAverage()
    average(COST[:0] + 1.0)
    average(COST + 2.0)
    average(COST[:0])
    assert average(COST) == 2.0


def test_numbers_of_numpy_are_baselines():
    weights = swor.unordered_set(DISTINCT)
    for number in (numpy.float32(1.0), numpy.array(1.0), numpy.int64(1)):
        assert torch.equal(weights.loss(COST, baseline=number), weights.loss(COST, baseline=1.0))


def test_an_unknown_estimator_has_near_names():
    with pytest.raises(KeyError) as caught:
        swor.ESTIMATORS["unorderd_set"]
    message = str(caught.value)
    assert message.startswith("there is no estimator 'unorderd_set' (do you mean 'unordered_set'")
    assert "importance_weighted" in message and caught.value.args[0] == "unorderd_set"
    assert "unorderd_set" not in swor.ESTIMATORS and swor.ESTIMATORS.get("unorderd_set") is None
    with pytest.raises(ValueError, match=r"do you mean 'relax'.*A callable"):
        swor.gradient_moments("relaxx", torch.sum, Categorical(logits=LOG_PROBS), [])


@pytest.mark.parametrize("case", BAD)
def test_bad_input_has_a_clear_error(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call()


WRONG = [
    (swor.unordered_set, INDEPENDENT, "gumbel_top_k"),
    (swor.unordered_set, BEAMS, "stochastic_beam_search"),
    (swor.unordered_set, TOP, "gumbel_top_k"),
    (swor.rloo, DISTINCT, "with_replacement"),
    (swor.sum_and_sample, INDEPENDENT, "gumbel_top_k"),
    (swor.raj, BEAMS, "gumbel_top_k"),
    (swor.importance_weighted, INDEPENDENT, "gumbel_top_k"),
    (swor.normalized_importance_weighted, BEAMS, "gumbel_top_k"),
    (swor.risk, INDEPENDENT, "beam_search"),
    (swor.deterministic_sum_and_sample, DISTINCT, "top_k_and_sample"),
    (swor.single_sample, BEAMS, "gumbel_top_k"),
]


@pytest.mark.parametrize("rule, sample, cure", WRONG)
def test_a_rule_refuses_a_sample_of_a_wrong_scheme(rule, sample, cure):
    with pytest.raises(ValueError, match=f"{rule.__name__} was given .*'{sample.scheme}'.*{cure}"):
        rule(sample)
