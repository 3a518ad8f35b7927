"""Mistakes that the user of a command can cure."""

from __future__ import annotations


class UserError(Exception):
    """What was given, what was expected, what to do; the command line shows it without a traceback."""


def check_positive(settings: object, *names: str) -> None:
    """Settings that are given are more than 0."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise UserError(f"{name} is {value}; expected more than 0.")
