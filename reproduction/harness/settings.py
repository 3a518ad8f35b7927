"""The settings of every training run and measurement, and how stored settings are read and compared.

A command takes one dataclass of settings. They are stored in ``settings.json`` and in the checkpoint.
With ``--resume RUN`` the stored settings become the defaults of the command, and what is given beside
it must not differ, except for the fields marked with :data:`MAY_CHANGE`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from reproduction.harness.errors import UserError, check_at_least, check_positive, check_seed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAY_CHANGE: Mapping[str, bool] = {"may_change": True}
"""Metadata of a field that may have another value when a run is resumed."""

Settings = TypeVar("Settings", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(ABC):
    """Settings of every training run. The settings of an experiment inherit from this class.

    Attributes:
        seed: seed of the initial weights, the batches and the noise.
        clip: largest norm of the gradient; None does not clip.
        log_every: number of steps that one line of ``metrics.jsonl`` averages.
        checkpoint_every: steps between checkpoints; there is also one after every epoch.
        keep_every: epochs between the copies of the model that are kept; 0 keeps none.
        keep_steps: numbers of steps after which a copy of the model is kept too; 0 is the untrained
            model.
        cpu: stay on the CPU even if there is an accelerator.
        out: folder of the run; by default a new one in runs/.
        resume: folder of a run to continue; its settings become the defaults.
    """

    seed: int = 0
    clip: float | None = None
    log_every: int = 100
    checkpoint_every: int = field(default=1000, metadata=MAY_CHANGE)
    keep_every: int = field(default=0, metadata=MAY_CHANGE)
    keep_steps: tuple[int, ...] = field(default=(), metadata=MAY_CHANGE)
    cpu: bool = False
    out: Path | None = field(default=None, metadata=MAY_CHANGE)
    resume: Path | None = field(default=None, metadata=MAY_CHANGE)

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Number of epochs in all, which is a field in most experiments."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "clip")
        check_at_least(self, 0, "epochs", "log_every", "checkpoint_every", "keep_every")
        if any(step < 0 for step in self.keep_steps):
            raise UserError(f"keep_steps is {self.keep_steps}; expected numbers of at least 0.")


@dataclass(frozen=True, kw_only=True)
class MeasurementSettings:
    """Settings of every measurement of gradients on kept models, which can be interrupted and resumed.

    Attributes:
        seed: seed of the samples.
        out: folder to write to; by default a new one in runs/.
        resume: folder of a measurement to continue; its settings become the defaults.
    """

    seed: int = 0
    out: Path | None = field(default=None, metadata=MAY_CHANGE)
    resume: Path | None = field(default=None, metadata=MAY_CHANGE)

    def __post_init__(self) -> None:
        check_seed(self.seed)


def may_change(settings: DataclassInstance | type[DataclassInstance]) -> set[str]:
    """Return the names of the settings that may have another value when a run is resumed."""
    return {f.name for f in fields(settings) if f.metadata.get("may_change")}


def defaults(kind: type[DataclassInstance], arguments: Sequence[str]) -> DataclassInstance | None:
    """Return the settings of the run that ``--resume RUN`` names, or None without that option.

    Args:
        kind: type of the settings of a command.
        arguments: of that command.
    """
    if not {"resume", "out"} <= may_change(kind):
        return None
    for position, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--resume":
            return read_settings(kind, Path(value or "".join(arguments[position + 1 :][:1])))
    return None


def read_settings(kind: type[Settings], run: Path) -> Settings:
    """Read the ``settings.json`` of a run, except for the folder that it was written to."""
    try:
        return from_json(kind, stored_settings(run) | {"out": None})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{run / 'settings.json'} does not hold the settings of such a run ({error}); expected "
            f"those of {kind.__name__}. Give the folder of a run of this command."
        ) from error


def stored_settings(run: Path) -> dict[str, Any]:
    """Read the settings of a run of any command as JSON."""
    path = run / "settings.json"
    if not path.is_file():
        raise UserError(f"there is no {path}; expected the folder of a run. Correct the folder.")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["settings"]
        return dict(stored)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not hold the settings of such a run ({error}); expected those that a run "
            "writes. Give the folder of a run."
        ) from error


def from_json(kind: type[Settings], stored: Mapping[str, Any]) -> Settings:
    """Make settings from their JSON form, including nested settings."""
    hints = get_type_hints(kind)
    return kind(**{name: _typed(hints[name], value) for name, value in stored.items()})


def _typed(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str) and Path in (hint, *get_args(hint)):
        value = Path(value)
    if not _fits(hint, value):
        raise TypeError(f"{value!r} is not of the type {getattr(hint, '__name__', hint)}")
    return value


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value is of one of the types that settings have."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin in (Union, UnionType):
        return any(_fits(each, value) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(inner[0], each) for each in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)


def as_json(settings: DataclassInstance) -> str:
    """Return the JSON form in which settings are stored and compared."""
    return json.dumps(asdict(settings), default=str, sort_keys=True)


def require_same(stored: str, settings: DataclassInstance, path: Path) -> None:
    """Refuse settings other than those of the run that is resumed.

    A setting that did not exist when the run was started must have its default, which stands for what
    the run did before.

    Args:
        stored: the settings of the run, by :func:`as_json`.
        settings: those that it is resumed with.
        path: the file that the former are from, for the error.
    """
    usual, now = _flat(_usual(settings)), _flat(json.loads(as_json(settings)))
    before = usual | _flat(json.loads(stored))
    free, missing = may_change(settings), "not a setting"
    changed = [
        f"{name} was {before.get(name, missing)!r} and is {now.get(name, missing)!r}"
        for name in sorted((before.keys() | now.keys()) - free)
        if before.get(name, missing) != now.get(name, missing)
    ]
    if changed:
        raise UserError(
            f"{path} was written with other settings: {'; '.join(changed)}. Expected the same. "
            f"Resume with those of the run (only {', '.join(sorted(free))} may change), or start "
            "another run."
        )


def _usual(settings: DataclassInstance) -> dict[str, Any]:
    """Return the JSON form of the settings that have a default, at their defaults."""
    usual: dict[str, Any] = {}
    for f in fields(settings):
        if f.default is not MISSING:
            usual[f.name] = f.default
        elif f.default_factory is not MISSING:
            usual[f.name] = f.default_factory()
    stored: dict[str, Any] = json.loads(json.dumps(usual, default=_plain))
    return stored


def _plain(value: Any) -> Any:
    """Return nested settings as a dictionary, and other values that JSON does not have as a string."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested settings, with names such as ``model.width``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}.{n}": v for n, v in inner.items()}
    return flat
