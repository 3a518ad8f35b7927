"""Mistakes that the user of a command can correct, and the checks that commands have in common.

Settings check themselves when they are made, in ``__post_init__``, and raise :class:`UserError`.
"""

from __future__ import annotations

import math
import os

GIB = 2**30


class UserError(Exception):
    """Says what was given, what was expected and what to do; shown without a traceback."""


def check_positive(settings: object, *names: str) -> None:
    """Refuse settings that are given and are not more than 0, or are infinite."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise UserError(f"{name} is {value}; expected more than 0.")
        if value == math.inf:
            raise UserError(f"{name} is {value}; expected a finite number.")


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator does not take."""
    if not -(2**63) <= seed < 2**63:
        raise UserError(f"seed is {seed}; expected an integer of 64 bits. Give a smaller one.")


def check_at_least(settings: object, least: int, *names: str) -> None:
    """Refuse settings that are given and are less than a number."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UserError(f"{name} is {value}; expected at least {least}.")


def check_memory(size: float, what: str) -> None:
    """Refuse what needs more memory than the machine has.

    Args:
        size: a lower bound of the memory that is needed, in bytes.
        what: what needs it, and which settings it depends on.

    >>> check_memory(1e30, "the batch (--batch-size)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    reproduction.harness.errors.UserError: there is no room for the batch (--batch-size): at least ...
    """
    there = physical_memory()
    if there is not None and size > there:
        raise UserError(
            f"there is no room for {what}: at least {size / GIB:,.1f} GiB of memory are needed; "
            f"expected at most the {there / GIB:,.1f} GiB of this machine. Give smaller sizes."
        )


def physical_memory() -> int | None:
    """The memory of the machine in bytes; None if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # as on Windows
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was asked for and not there."""
    said = ("can't allocate memory", "not enough memory")  # torch, on the CPU
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch, on an accelerator
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in said))
    )
