"""The best of several draws in many digits, for samples with two levels of probability.

A set of outcomes then counts only by how many it has of either level, so sums over subsets are sums
over counts, which are exact at any k.
"""

from __future__ import annotations

from itertools import pairwise
from math import comb

import mpmath as mp
from ratios_reference import counts

DIGITS = 50


class TwoLevels:
    """A sample in ascending order of f; ``levels`` says "a" or "b" of each outcome."""

    def __init__(self, levels, log_a, log_b, log_rest, m):
        with mp.workdps(DIGITS):
            self.levels, self.m = levels, m
            self.na, self.nb = levels.count("a"), levels.count("b")
            a, b, rest = (mp.e ** mp.mpf(x) for x in (log_a, log_b, log_rest))
            total = rest + self.na * a + self.nb * b
            self.a, self.b = a / total, b / total
            h = counts(self.a, self.na, self.b, self.nb, rest / total)
            whole = h[self.na, self.nb]
            self.left = {
                (i, j): h[self.na - i, self.nb - j] / (whole * self.a**i * self.b**j)
                for i in range(min(self.na, m + 1) + 1)
                for j in range(min(self.nb, m + 1 - i) + 1)
            }
            self.supports = self._supports()

    def _supports(self):
        """For n = 0, 1, …, m draws: that they have exactly i given outcomes a and j given b."""
        tables = [{(0, 0): mp.mpf(1)}]
        for n in range(1, self.m + 1):
            last, table = tables[-1], {}
            for i in range(n + 1):
                for j in range(n + 1 - i):
                    again = (i * self.a + j * self.b) * last.get((i, j), 0)
                    from_a = i * self.a * last.get((i - 1, j), 0)
                    from_b = j * self.b * last.get((i, j - 1), 0)
                    table[i, j] = again + from_a + from_b
            tables.append(table)
        return tables

    def below(self, na, nb, n, known=None, inside=False):
        """That n draws are among na and nb outcomes, and that another draw is a known outcome.

        ``inside``: the n draws may also be that outcome, which is not counted in na and nb.
        """
        da, db = int(known == "a"), int(known == "b")
        support, total = self.supports[n], mp.mpf(0)
        for i in range(min(na, n) + 1):
            for j in range(min(nb, n - i) + 1):
                left = self.left.get((i + da, j + db))
                if left is not None:  # otherwise the sample has no room for them
                    z = support[i, j] + (support.get((i + da, j + db), 0) if inside else 0)
                    total += comb(na, i) * comb(nb, j) * z * left
        return total * (1 if known is None else self.a if da else self.b)

    def weights(self):
        """The probability of each outcome to be the best of m draws."""
        with mp.workdps(DIGITS):
            below = [self.below(*self._counts(j), self.m) for j in range(len(self.levels) + 1)]
            return [y - x for x, y in pairwise(below)]

    def coefficient(self, f, s):
        """The coefficient of the gradient for the outcome of rank s, as the definition has it."""
        order = self.m if len(self.levels) > self.m else self.m - 1
        with mp.workdps(DIGITS):
            gain = self._mean(f, s, self.m - 1, known_counts=True)
            lost = self._mean(f, s, order, known_counts=False)
            return self.m * (gain - lost)

    def _mean(self, f, s, n, *, known_counts):
        """E[1{x_{n+1} = s} max], over n + 1 draws or over the first n of them."""
        level, total = self.levels[s], mp.mpf(0)
        last = mp.mpf(0) if known_counts else self.below(0, 0, n, level)
        for j in range(len(self.levels)):
            na, nb = self._counts(j + 1)
            inside = j >= s
            if inside:
                na, nb = na - (level == "a"), nb - (level == "b")
            if inside or not known_counts:
                now = self.below(na, nb, n, level, inside)
                total += mp.mpf(f[j]) * (now - last)
                last = now
        return total

    def _counts(self, j):
        return self.levels[:j].count("a"), self.levels[:j].count("b")
