"""Settings of a run that is resumed: those it was started with, where no others are given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from swor.experiments.errors import UserError
from swor.experiments.task import Training

Settings = TypeVar("Settings", bound=Training)


def defaults(kind: type[Any], arguments: Sequence[str]) -> Training | None:
    """The settings of the run that ``--resume RUN`` names, for a kind that can be resumed.

    Args:
        kind: of the settings of a command.
        arguments: of that command.
    """
    if not (issubclass(kind, Training) and {"resume", "out"} <= {f.name for f in fields(kind)}):
        return None
    for position, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--resume":
            run = Path(value or "".join(arguments[position + 1 :][:1]))
            return read_settings(kind, run, out=None)
    return None


def read_settings(kind: type[Settings], run: Path, *, out: Path | None) -> Settings:
    """The settings of a run, from its ``settings.json``, with another folder to write to."""
    path = run / "settings.json"
    if not path.is_file():
        raise UserError(f"there is no {path}; expected the folder of a run. Correct the folder.")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["settings"]
        hints = get_type_hints(kind)
        typed = {name: _typed(hints[name], value) for name, value in stored.items()}
        return kind(**typed | {"out": out})
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not hold the settings of such a run ({error}); expected those of "
            f"{kind.__name__}. Give the folder of a run of this command."
        ) from error


def _typed(hint: Any, value: Any) -> Any:
    """A value as JSON has it, in the type of its field."""
    return Path(value) if Path in (hint, *get_args(hint)) and value is not None else value
