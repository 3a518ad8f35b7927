"""Memory: sizes that cannot fit are refused before memory is asked for."""

from __future__ import annotations

import os

from swor.experiments.runs.errors import UserError

GIB = 2**30


def check_memory(size: float, what: str) -> None:
    """Refuse what needs more memory than the machine has.

    Args:
        size: a lower bound of the memory that is needed, in bytes.
        what: what needs it, and which settings it depends on.

    >>> check_memory(1e30, "the batch (--batch-size)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    swor.experiments.runs.errors.UserError: there is no room for the batch (--batch-size): at least ...
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
