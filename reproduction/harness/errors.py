"""Mistakes that the user of a command can correct, and the checks that commands have in common.

Settings check themselves when they are made, in ``__post_init__``, and raise :class:`UserError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LARGEST = 2**31
"""Sizes are below it, far beyond any memory, so that their products are numbers of 64 bits."""


class UserError(Exception):
    """Says what was given, what was expected and what to do; shown without a traceback."""


@contextmanager
def readable(file: Path | str, expected: str, *damage: type[Exception]) -> Iterator[None]:
    """Turn the errors that a damaged file raises into one that names it."""
    try:
        yield
    except damage as error:
        raise UserError(
            f"{file} cannot be read ({type(error).__name__}: {error}); expected {expected}. Restore "
            "the file from a copy, or start again in another folder."
        ) from error


def check_positive(settings: object, *names: str) -> None:
    """Refuse settings that are given and are not more than 0, or are infinite."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{name} is {value}; expected more than 0, and a finite number.")
        _check_size(name, value)


def check_at_least(settings: object, least: int, *names: str) -> None:
    """Refuse settings that are given and are less than a number."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UserError(f"{name} is {value}; expected at least {least}.")
        _check_size(name, value)


def _check_size(name: str, value: Any) -> None:
    if isinstance(value, int) and value >= LARGEST:
        raise UserError(f"{name} is {value}; expected less than {LARGEST}. Give a smaller number.")


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator does not take."""
    if not -(2**63) <= seed < 2**63:
        raise UserError(f"seed is {seed}; expected an integer of 64 bits. Give a smaller one.")


def check_heads(width: int, heads: int) -> None:
    """Refuse a width that the heads of an attention cannot share."""
    if width % heads:
        raise UserError(
            f"width is {width} and heads {heads}; expected a width that the heads can share. Choose a "
            "multiple."
        )


def check_one_of_each(kinds: Iterable[tuple[object, int]]) -> None:
    """Refuse two runs of the same kind, such as an estimator, and the same seed."""
    seen = set()
    for kind, seed in kinds:
        if (kind, seed) in seen:
            raise UserError(
                f"two of the folders have a run of {kind} with seed {seed}; expected one run for each "
                "of them and each seed. Leave one of the two out."
            )
        seen.add((kind, seed))
