"""The settings of every training run and measurement, and how stored settings are read and compared.

A command takes one dataclass of settings, which is stored in ``settings.json``. With ``--resume RUN`` the
stored settings become the defaults of the command, and the options beside it must not differ from them,
except for the fields marked with :data:`MAY_CHANGE`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import tyro

from reproduction.harness.errors import UserError, check_at_least, check_positive, check_seed
from reproduction.harness.folder import read_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAY_CHANGE: Mapping[str, bool] = {"may_change": True}
"""Metadata of a field that may have another value when a run is resumed."""

Settings = TypeVar("Settings", bound="DataclassInstance")
Tracker = Literal["tensorboard", "wandb"]


@dataclass(frozen=True, kw_only=True)
class ResumableSettings:
    """Settings of every command that can be interrupted and resumed.

    Attributes:
        seed: seed of all randomness.
        out: folder to write to; by default a new one in runs/.
        resume: folder to continue in; the settings in it become the defaults.
    """

    seed: int = 0
    out: Path | None = field(default=None, metadata=MAY_CHANGE)
    resume: Path | None = field(default=None, metadata=MAY_CHANGE)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.resume is not None and self.out is not None:
            raise UserError(
                f"--resume {self.resume} and --out {self.out} were given; expected one of them, since "
                "a run continues in its own folder. Leave out --out."
            )


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(ResumableSettings, ABC):
    """Settings of every training run. The settings of an experiment inherit from this class.

    Attributes:
        clip: largest norm of the gradient; None does not clip.
        log_every: number of steps that one line of ``metrics.jsonl`` averages.
        checkpoint_every: steps between checkpoints; there is also one after every epoch.
        keep_every: epochs between the copies of the model that are kept; 0 keeps none.
        keep_steps: numbers of steps after which a copy of the model is kept too; 0 is the untrained
            model.
        track: also send the metrics to tensorboard (in the folder of the run), to wandb, or to both.
        cpu: stay on the CPU even if there is an accelerator.
    """

    clip: float | None = None
    log_every: int = 100
    checkpoint_every: int = field(default=1000, metadata=MAY_CHANGE)
    keep_every: int = field(default=0, metadata=MAY_CHANGE)
    keep_steps: tuple[int, ...] = field(default=(), metadata=MAY_CHANGE)
    track: tuple[Tracker, ...] = field(default=(), metadata=MAY_CHANGE)
    cpu: bool = False

    @property
    @abstractmethod
    def epochs(self) -> int:
        """Number of epochs in all, which is a field in most experiments."""

    @property
    def length(self) -> str:
        """How long the run is, and the option that says so."""
        return f"{self.epochs:,} epochs (--epochs)"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip")
        check_at_least(self, 0, "epochs", "log_every", "checkpoint_every", "keep_every")
        if any(step < 0 for step in self.keep_steps):
            raise UserError(f"keep_steps is {self.keep_steps}; expected numbers of at least 0.")


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """Settings of every command that compares runs.

    Attributes:
        runs: folders of runs of the commands that train.
        out: folder to write to; by default a new one in runs/.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("no runs were given; expected folders of runs to compare.")
        if len({run.resolve() for run in self.runs}) < len(self.runs):
            given = ", ".join(map(str, self.runs))
            raise UserError(f"a run was given twice: {given}. Give each once.")


def own_first(kind: type[Settings]) -> type[Settings]:
    """List the fields that a class of settings declares itself before those that it inherits.

    The help of a command has its options in this order.
    """
    found = kind.__dataclass_fields__
    own = {name: found[name] for name in kind.__annotations__ if name in found}
    kind.__dataclass_fields__ = own | found
    return kind


def may_change(settings: DataclassInstance | type[DataclassInstance]) -> set[str]:
    """Return the names of the settings that may have another value when a run is resumed."""
    return {f.name for f in fields(settings) if f.metadata.get("may_change")}


def defaults(kind: type[DataclassInstance], arguments: Sequence[str]) -> DataclassInstance | None:
    """Return the settings of the run that ``--resume RUN`` names, or None without that option."""
    if not issubclass(kind, ResumableSettings):
        return None
    for position, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--resume":
            return read_settings(kind, Path(value or "".join(arguments[position + 1 :][:1])))
    return None


def read_settings(kind: type[Settings], run: Path) -> Settings:
    """Read the ``settings.json`` of a run, except for the folder that it was written to."""
    return from_json(kind, stored_settings(run) | {"out": None}, run / "settings.json")


def stored_settings(run: Path) -> dict[str, Any]:
    """Read the settings of a run of any command as JSON."""
    path = run / "settings.json"
    if not path.is_file():
        raise UserError(f"there is no {path}; expected the folder of a run. Correct the folder.")
    stored = read_json(path).get("settings")
    if not isinstance(stored, dict):
        raise UserError(
            f"{path} holds no settings but {stored!r}; expected those that a run writes. Give the "
            "folder of a run."
        )
    return stored


def from_json(kind: type[Settings], stored: Mapping[str, Any], path: Path) -> Settings:
    """Make settings from their JSON form in a file; settings that are missing have their defaults."""
    from dacite import Config, DaciteError, from_dict

    try:
        return from_dict(kind, stored, Config(cast=[Path, tuple], strict=True))
    except (DaciteError, TypeError) as error:
        raise UserError(
            f"{path} does not hold the settings of such a run ({error}); expected those of "
            f"{kind.__name__}. Give a file that a run of this command wrote."
        ) from error


def require_same(before: Settings, now: Settings, path: Path) -> None:
    """Refuse settings other than those of the run that is resumed, which are in a file."""
    if changed := list(_changes(before, now)):
        raise UserError(
            f"{path} was written with other settings: {'; '.join(changed)}. Expected the same. "
            f"Resume with those of the run (only {', '.join(sorted(may_change(now)))} may change), "
            "or start another run."
        )


def _changes(before: Settings, now: Settings, prefix: str = "") -> Iterator[str]:
    for f in fields(now):
        was, value = getattr(before, f.name), getattr(now, f.name)
        if is_dataclass(value):
            yield from _changes(was, value, f"{prefix}{f.name}.")
        elif was != value and f.name not in may_change(now):
            yield f"{prefix}{f.name} was {was!r} and is {value!r}"
