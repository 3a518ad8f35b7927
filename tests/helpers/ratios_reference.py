"""Leave-one-out ratios in many digits, for sets with at most two levels of probability.

There h(A) depends on A only through its numbers of elements of either level, so the recursion over
subsets is one over counts and is exact at any k.
"""

from __future__ import annotations

import mpmath as mp


def counts(a, na, b, nb, rest):
    """h[i, j]: the sum over orderings of i elements of probability a and j of probability b."""
    h = {(0, 0): mp.mpf(1)}
    for i in range(na + 1):
        for j in range(nb + 1):
            if i or j:
                terms = (i * h[i - 1, j] if i else 0) + (j * h[i, j - 1] if j else 0)
                h[i, j] = terms / (rest + i * a + j * b)
    return h


def two_levels(log_a, na, log_b, nb, log_rest):
    """Log p(S), and the log-ratios of each kind of element and pair of elements.

    Returns a dict: "set"; "a", "b": log R; "aa", "ab", "ba", "bb": log R2, row then column.
    """
    with mp.workdps(50):
        a, b, rest = (mp.e ** mp.mpf(x) for x in (log_a, log_b, log_rest))
        total = rest + na * a + nb * b
        a, b, rest = a / total, b / total, rest / total
        h = counts(a, na, b, nb, rest)
        whole = h[na, nb]
        out = {"set": mp.log(whole) + na * mp.log(a) + nb * mp.log(b)}
        one = {"a": (na - 1, nb), "b": (na, nb - 1)}
        for s, p in (("a", a), ("b", b)):
            i, j = one[s]
            if i < 0 or j < 0:
                continue
            out[s] = mp.log(h[i, j] / (whole * p))
            for t, q, (x, y) in (("a", a, (i - 1, j)), ("b", b, (i, j - 1))):
                if x >= 0 and y >= 0:
                    out[s + t] = mp.log(h[x, y] / (h[i, j] * q))
        return out
