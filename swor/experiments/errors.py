"""Mistakes that the user of a command can cure."""

from __future__ import annotations


class UserError(Exception):
    """What was given, what was expected, what to do; the command line shows it without a traceback."""
