"""Mistakes that the user of a command can correct, and the checks that commands have in common.

Settings check themselves when they are made, in ``__post_init__``, and raise :class:`UserError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def check_at_least(settings: object, least: int, *names: str) -> None:
    """Refuse settings that are given and are less than a number."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UserError(f"{name} is {value}; expected at least {least}.")


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator does not take."""
    if not -(2**63) <= seed < 2**63:
        raise UserError(f"seed is {seed}; expected an integer of 64 bits. Give a smaller one.")
