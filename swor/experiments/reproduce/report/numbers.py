"""Agreement in numbers."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, the smallest; those of equal values are averaged.

    >>> ranks([3.0, 1.0, 3.0])
    [2.5, 1.0, 2.5]
    """
    return [
        sum(other < value for other in values) + (values.count(value) + 1) / 2
        for value in map(float, values)
    ]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    r"""Spearman's $\rho$: the correlation of the ranks; NaN for fewer than three pairs.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 15.0])
    0.5
    """
    if len(a) < 3:
        return math.nan
    x, y = ranks(list(a)), ranks(list(b))
    mean = (len(x) + 1) / 2
    covariance = sum((i - mean) * (j - mean) for i, j in zip(x, y, strict=True))
    norm = sum((i - mean) ** 2 for i in x) * sum((j - mean) ** 2 for j in y)
    return covariance / math.sqrt(norm)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def finite(value: float) -> float | None:
    """A number that a logarithmic axis can show, or None.

    >>> finite(0.0), finite(math.inf), finite(2.0)
    (None, None, 2.0)
    """
    return value if 0.0 < value < math.inf else None
