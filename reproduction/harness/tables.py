"""Tables: in Markdown, as pages of results have them, with means over seeds in their cells, or read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import pandas as pd

from reproduction.harness.errors import UserError, readable
from reproduction.harness.statistics import minus, over_seeds

Row = TypeVar("Row", bound=tuple[Any, ...])


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return a table: a line for the header, one for the rule below it, and one for each row.

    >>> markdown(["estimator", "k"], [["unordered set", 4]])
    '| estimator | k |\n| --- | --- |\n| unordered set | 4 |\n'
    """
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def mean_and_interval(values: Sequence[float], digits: int) -> str:
    """Format a mean with its confidence interval, which needs two values.

    >>> mean_and_interval([1.0, 2.0, 3.0], 1), mean_and_interval([2.0], 2)
    ('2.0 (−0.5 to 4.5)', '2.00')
    """
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    mean, low, high = (f"{number:.{digits}f}" for number in over_seeds(values))
    return minus(f"{mean} ({low} to {high})")


def read_table(path: Path, kind: type[Row], command: str) -> list[Row]:
    """Read rows of a kind of NamedTuple that a command has written as CSV; none if there is no table."""
    if not path.exists():
        return []
    types = get_type_hints(kind)
    with readable(path, f"the table that {command} wrote", TypeError, ValueError):
        table = pd.read_csv(path, usecols=list(types), dtype=types, keep_default_na=False)
        return [kind(*row) for row in table[list(types)].itertuples(index=False, name=None)]


def committed_table(path: Path) -> pd.DataFrame:
    """Read a committed table."""
    if not path.is_file():
        raise UserError(
            f"there is no table {path}; expected the repository. Start the command in its folder, or "
            "give it with --root."
        )
    return pd.read_csv(path)
