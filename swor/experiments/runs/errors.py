"""Mistakes that the user of a command can correct, and the checks that settings have in common.

Settings check themselves when they are made, in ``__post_init__``, and raise :class:`UserError`.
"""

from __future__ import annotations


class UserError(Exception):
    """Says what was given, what was expected and what to do; shown without a traceback."""


def check_positive(settings: object, *names: str) -> None:
    """Refuse settings that are given and are not more than 0."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise UserError(f"{name} is {value}; expected more than 0.")


def check_at_least(settings: object, least: int, *names: str) -> None:
    """Refuse settings that are given and are less than a number."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UserError(f"{name} is {value}; expected at least {least}.")
