"""The numerics of the best of several draws: definition, many digits, extremes."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations, product

import mpmath as mp
import pytest
import torch
from best_of_reference import TwoLevels

from swor.math._best_of.weights import best_of_variance, best_of_weights

METHODS = ["subsets", "integral"]


class Definition:
    """The sums over subsets as they are defined, in fractions."""

    def __init__(self, p, f, m):
        self.p, self.f, self.m, self.k = p, f, m, len(p)
        self.left, self.support = cache(self._left), cache(self._support)

    def _left(self, out):
        """The probability of drawing the rest of the sample once ``out`` is removed."""
        total = Fraction(0)
        rest = [i for i in range(self.k) if i not in out]
        for order in permutations(rest):
            mass, probability = 1 - sum(self.p[i] for i in out), Fraction(1)
            for i in order:
                probability *= self.p[i] / mass
                mass -= self.p[i]
            total += probability
        return total

    def _support(self, outcomes, n):
        """The probability that n draws have exactly this support."""
        rows = (row for row in product(outcomes, repeat=n) if set(row) == set(outcomes))
        return sum((math.prod(self.p[i] for i in row) for row in rows), Fraction(0))

    def subsets(self):
        return [u for size in range(self.k + 1) for u in combinations(range(self.k), size)]

    def best(self, outcomes):
        return max((self.f[i] for i in outcomes), default=0)

    def weights(self):
        weight = [Fraction(0)] * self.k
        for u in self.subsets()[1:]:
            best = max(u, key=lambda i: self.f[i])
            weight[best] += self.support(u, self.m) * self.left(u) / self.left(())
        return weight

    def coefficient(self, s):
        order = self.m if self.k > self.m else self.m - 1
        total = Fraction(0)
        for u in self.subsets():
            both = tuple(sorted({*u, s}))
            gain = self.support(u, self.m - 1) * self.best(both)
            lost = self.support(u, order) * self.best(u)
            total += self.left(both) * (gain - lost)
        return self.m * self.p[s] * total / self.left(())

    def variance(self):
        mean = sum(w * f for w, f in zip(self.weights(), self.f, strict=True))
        pairs = product(self.subsets()[1:], repeat=2)
        both = sum(
            self.support(u, self.m)
            * self.support(v, self.m)
            * self.left(tuple(sorted({*u, *v})))
            * self.best(u)
            * self.best(v)
            for u, v in pairs
        )
        return mean**2 - both / self.left(())


P = [Fraction(1, n) for n in (13, 3, 100, 7, 20, 9)]
F = [Fraction(n, 6) for n in (3, -2, 12, 6, 0, 7)]


def tensors(p, f):
    log_p = torch.tensor([float(x) for x in p], dtype=torch.float64).log()
    rest = torch.tensor(float(1 - sum(p)), dtype=torch.float64).log()
    return log_p, rest, torch.tensor([float(x) for x in f], dtype=torch.float64)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_both_methods_are_the_definition(k, method):
    log_p, rest, f = tensors(P[:k], F[:k])
    error = {"subsets": 1e-14, "integral": 2e-13}[method]  # the quadrature is least exact for k = 1
    for m in range(1, k + 1):
        exact = Definition(P[:k], F[:k], m)
        found = best_of_weights(log_p, rest, f, m, method=method)
        for s in range(k):
            assert abs(found.weight[s].item() - float(exact.weights()[s])) <= error
            assert abs(found.coefficient[s].item() - float(exact.coefficient(s))) <= error


@pytest.mark.parametrize("k, m", [(2, 1), (3, 1), (4, 2), (6, 2), (6, 3)])
def test_the_variance_is_the_definition(k, m):
    log_p, rest, f = tensors(P[:k], F[:k])
    exact = Definition(P[:k], F[:k], m).variance()
    assert abs(best_of_variance(log_p, rest, f, m).item() - float(exact)) <= 1e-14


def random_sets(k, scale, seed=0, batch=4, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    log_probs = (scale * torch.randn(batch, k + 3, generator=g, dtype=dtype)).log_softmax(-1)
    f = torch.randn(batch, k, generator=g, dtype=dtype)
    return log_probs[:, :k], log_probs[:, k:].logsumexp(-1), f


@pytest.mark.parametrize("scale", [0.1, 2.0, 20.0])
@pytest.mark.parametrize("k", [2, 5, 8, 9, 12])
def test_the_methods_agree(k, scale):
    log_p, rest, f = random_sets(k, scale)
    for m in sorted({1, 2, k // 2, k - 1, k} - {0}):
        ours = best_of_weights(log_p, rest, f, m, method="integral")
        exact = best_of_weights(log_p, rest, f, m, method="subsets")
        assert (ours.weight - exact.weight).abs().max() <= 1e-12
        assert (ours.coefficient - exact.coefficient).abs().max() <= 1e-12 * m


@pytest.mark.parametrize("m", [2, 8, 15, 16])
def test_the_methods_agree_at_sixteen(m):
    for scale in (0.5, 5.0):
        log_p, rest, f = random_sets(16, scale, batch=1)
        ours = best_of_weights(log_p, rest, f, m, method="integral")
        exact = best_of_weights(log_p, rest, f, m, method="subsets")
        assert (ours.weight - exact.weight).abs().max() <= 1e-12
        assert (ours.coefficient - exact.coefficient).abs().max() <= 1e-12 * m


LEVELS = [
    (0.5, 0.01, 1.0),
    (0.3, 1e-30, 1e-50),
    (1e-50, 1e-150, 1.0),
    (1e-2, 1e-9, 1e-20),
    (1e-150, 1e-3, 1e-3),
    (1 - 1e-9, 1e-150, 1e-9),
]


def worst_error(k, m, na, level, dtype=torch.float64, method="integral"):
    """The largest error of a weight, and of a coefficient beside the weight of its outcome."""
    rng = random.Random(k + m)
    levels = ["a"] * na + ["b"] * (k - na)
    rng.shuffle(levels)
    f = torch.tensor(sorted(rng.gauss(0.0, 1.0) for _ in range(k)), dtype=dtype)
    log_a, log_b, rest = (torch.tensor(math.log(x), dtype=dtype) for x in level)
    exact = TwoLevels(levels, log_a.item(), log_b.item(), rest.item(), m)
    log_p = torch.stack([log_a if x == "a" else log_b for x in levels])
    found = best_of_weights(log_p, rest, f, m, method=method)
    errors = [abs(mp.mpf(x.item()) - y) for x, y in zip(found.weight, exact.weights(), strict=True)]
    for s in (levels.index("a"), k // 3, k - 1):
        right = exact.coefficient([x.item() for x in f], s)
        size = m * exact.below(0, 0, 0, levels[s])  # how often s is the first draw
        errors.append(abs(mp.mpf(found.coefficient[s].item()) - right) / size)
    return float(max(errors))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k, m", [(2, 1), (3, 2), (8, 4), (8, 8)])
def test_many_digits(k, m, method):
    for level in LEVELS:
        for na in {1, k // 2}:
            assert worst_error(k, m, na, level, method=method) <= 1e-12, (level, na)


@pytest.mark.parametrize(
    "k, m",
    [
        *((16, 4), (16, 16), (64, 8)),
        *(pytest.param(*size, marks=pytest.mark.slow) for size in ((33, 32), (64, 32), (256, 8))),
    ],
)
def test_many_digits_of_large_samples(k, m):
    for level in LEVELS[:4]:
        assert worst_error(k, m, 3, level) <= 1e-12, level


@pytest.mark.slow
def test_many_digits_of_the_largest_sample():
    assert worst_error(256, 32, 3, LEVELS[0]) <= 1e-12
    assert worst_error(256, 32, 128, (2e-3, 1e-3, 0.1)) <= 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k, m", [(3, 2), (8, 4), (8, 8)])
def test_many_digits_in_single_precision(k, m, method):
    for level in LEVELS[:3]:
        assert worst_error(k, m, 1, level, dtype=torch.float32, method=method) <= 2e-5, level


@pytest.mark.parametrize("k, m", [(16, 16), (100, 80)])
def test_single_precision_follows_double_precision(k, m):
    log_p, rest, f = random_sets(k, 1.0, batch=2)
    exact = best_of_weights(log_p, rest, f, m)
    ours = best_of_weights(log_p.float(), rest.float(), f.float(), m)
    assert (ours.weight - exact.weight).abs().max() <= 2e-5
    assert (ours.coefficient - exact.coefficient).abs().max() <= 2e-5 * m


def test_a_far_target_stays_finite():
    log_p, rest, f = random_sets(12, 5.0)
    target = log_p.flip(-1) - 2.0
    for m in (1, 4, 8):
        found = best_of_weights(log_p, rest, f, m, log_p=target)
        exact = best_of_weights(log_p, rest, f, m, log_p=target, method="subsets")
        size = exact.weight.abs().max()
        assert (found.weight - exact.weight).abs().max() <= 1e-11 * size
        assert (found.coefficient - exact.coefficient).abs().max() <= 1e-11 * m * size


def test_a_method_that_does_not_exist():
    with pytest.raises(ValueError, match="expected 'auto', 'subsets' or 'integral'"):
        best_of_weights(*random_sets(3, 1.0), 2, method="orderings")
