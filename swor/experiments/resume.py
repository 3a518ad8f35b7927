"""Settings of a run that is resumed: those it was started with, where no others are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from swor.experiments.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAY_CHANGE: Mapping[str, bool] = {"may_change": True}
"""Metadata of a field of the settings that a resumed run may be given another value of."""

Settings = TypeVar("Settings", bound="DataclassInstance")


def may_change(settings: DataclassInstance | type[DataclassInstance]) -> set[str]:
    """The names of the settings that a resumed run may be given another value of."""
    return {f.name for f in fields(settings) if f.metadata.get("may_change")}


def defaults(kind: type[DataclassInstance], arguments: Sequence[str]) -> DataclassInstance | None:
    """The settings of the run that ``--resume RUN`` names, for a kind that can be resumed.

    Args:
        kind: of the settings of a command.
        arguments: of that command.
    """
    if not {"resume", "out"} <= may_change(kind):
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
    if isinstance(value, list):
        return tuple(value)
    return Path(value) if Path in (hint, *get_args(hint)) and value is not None else value


def as_json(settings: DataclassInstance) -> str:
    """Settings as they are stored to be compared with later."""
    return json.dumps(asdict(settings), default=str, sort_keys=True)


def require_same(before: Mapping[str, Any], settings: DataclassInstance, path: Path) -> None:
    """Settings are those of the run that is resumed, but for those that may change.

    Args:
        before: the settings of the run, as JSON has them.
        settings: those that it is resumed with.
        path: of the file that has the former, for the error.
    """
    now = json.loads(as_json(settings))
    free = may_change(settings)
    names = sorted((before.keys() | now.keys()) - free)
    missing = "not a setting"
    changed = [
        f"{name} was {before.get(name, missing)!r} and is {now.get(name, missing)!r}"
        for name in names
        if before.get(name, missing) != now.get(name, missing)
    ]
    if changed:
        raise UserError(
            f"{path} was written with other settings: {'; '.join(changed)}. Expected the same. "
            f"Resume with those of the run (only {', '.join(sorted(free))} may change), or start "
            "another run."
        )
