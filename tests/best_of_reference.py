"""The best of several draws in many digits, for samples with two levels of probability.

A set of outcomes then counts only by how many it has of either level, so sums over subsets are sums
over counts, which are exact at any k.
"""

from __future__ import annotations

from itertools import pairwise

import mpmath as mp
from reference import counts


class TwoLevels:
    """A sample in ascending order of f; ``levels`` says "a" or "b" of each outcome."""

    def __init__(self, levels, log_a, log_b, log_rest, m):
        self.levels, self.m = levels, m
        self.na, self.nb = levels.count("a"), levels.count("b")
        a, b, rest = (mp.e ** mp.mpf(x) for x in (log_a, log_b, log_rest))
        total = rest + self.na * a + self.nb * b
        self.a, self.b = a / total, b / total
        self.h = counts(self.a, self.na, self.b, self.nb, rest / total)
        self.z = [self._support(n) for n in range(m + 1)]

    def _support(self, n):
        """The probabilities that n draws have exactly i given outcomes a and j given outcomes b."""
        z = {(0, 0): mp.mpf(n == 0)}
        for i in range(n + 1):
            for j in range(n + 1 - i):
                if i or j:
                    last = self.z_before if n > 1 else {(0, 0): mp.mpf(1)}
                    again = (i * self.a + j * self.b) * last.get((i, j), 0)
                    new = i * self.a * last.get((i - 1, j), 0) + j * self.b * last.get(
                        (i, j - 1), 0
                    )
                    z[i, j] = again + new
        self.z_before = z
        return z

    def left(self, i, j):
        """The probability of the rest of the sample once i and j are out, over that of all of it."""
        if i > self.na or j > self.nb:
            return mp.mpf(0)
        ratio = self.h[self.na - i, self.nb - j] / self.h[self.na, self.nb]
        return ratio / (self.a**i * self.b**j)

    def below(self, na, nb, n, known=None, inside=False):
        """That n draws are among na and nb outcomes; and that another one is a known outcome.

        ``inside``: that outcome is one more that the n draws may be.
        """
        total = mp.mpf(0)
        da, db = (known == "a"), (known == "b")
        for i in range(min(na, n) + 1):
            for j in range(min(nb, n - i) + 1):
                z = self.z[n][i, j]
                if inside:
                    z = z + self.z[n].get((i + da, j + db), 0)
                total += mp.binomial(na, i) * mp.binomial(nb, j) * z * self.left(i + da, j + db)
        return total * (1 if known is None else self.a if da else self.b)

    def weights(self):
        """The probability of each outcome to be the best of m draws."""
        below = [self.below(*self._counts(j), self.m) for j in range(len(self.levels) + 1)]
        return [y - x for x, y in pairwise(below)]

    def coefficient(self, f, s):
        """The coefficient of the gradient for the outcome of rank s, as the definition has it."""
        m, level = self.m, self.levels[s]
        order = m if len(self.levels) > m else m - 1
        gain, lost = mp.mpf(0), mp.mpf(0)
        last = {"gain": mp.mpf(0), "lost": self.below(0, 0, order, level)}
        for j in range(len(self.levels)):
            na, nb = self._counts(j + 1)
            inside = j >= s
            if inside:
                na, nb = na - (level == "a"), nb - (level == "b")
            now = self.below(na, nb, m - 1, level, inside) if inside else mp.mpf(0)
            gain += mp.mpf(f[j]) * (now - last["gain"])
            last["gain"] = now
            now = self.below(na, nb, order, level, inside)
            lost += mp.mpf(f[j]) * (now - last["lost"])
            last["lost"] = now
        return m * (gain - lost)

    def _counts(self, j):
        return self.levels[:j].count("a"), self.levels[:j].count("b")
