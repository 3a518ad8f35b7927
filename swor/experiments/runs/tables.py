"""Tables in Markdown, as pages of results have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return a table: a line for the header, one for the rule below it, and one for each row.

    >>> markdown(["estimator", "k"], [["unordered set", 4]])
    '| estimator | k |\n| --- | --- |\n| unordered set | 4 |\n'
    """
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
