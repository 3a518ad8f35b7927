"""The folder of a run: made new, never overwritten, with its settings beside its results."""

from __future__ import annotations

import csv
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from swor.experiments.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class RunFolder:
    r"""A folder of results; every file in it is whole, however the run ends.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     folder = create(Path(directory) / "run")
    ...     folder.write_csv("squares.csv", [{"x": 1, "y": 1}, {"x": 2, "y": 4}]).read_text()
    'x,y\n1,1\n2,4\n'
    """

    path: Path

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A path to write to; on success it becomes the file ``name``, with the same suffix."""
        target = self.path / name
        draft = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield draft
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def write_text(self, name: str, text: str) -> Path:
        """Write a file as UTF-8 with plain line ends."""
        with self.replacing(name) as draft:
            draft.write_text(text, encoding="utf-8", newline="\n")
        return self.path / name

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a file that a person can read; infinities and NaN become strings."""
        text = json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)
        return self.write_text(name, text + "\n")

    def write_csv(self, name: str, rows: Sequence[Mapping[str, object]]) -> Path:
        """Write a table; the columns are the keys of the first row."""
        text = StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self.write_text(name, text.getvalue())

    def write_settings(self, settings: DataclassInstance) -> Path:
        """Write ``settings.json``: the settings, the command and the versions; those of a resumed run too."""
        path = self.path / "settings.json"
        if not path.exists():
            return self.write_json(path.name, {"settings": asdict(settings), **provenance()})
        stored = json.loads(path.read_text(encoding="utf-8"))
        again = {
            "settings": asdict(settings),
            "resumed": [*stored.get("resumed", []), provenance()],
        }
        return self.write_json(path.name, stored | again)


def create(path: Path) -> RunFolder:
    """Make a new folder.

    Args:
        path: where; it must not exist, or be an empty folder.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(
            f"{path} exists; expected a new or empty folder, since nothing is ever overwritten. "
            "Give another folder with --out, or remove this one first."
        )
    path.mkdir(parents=True, exist_ok=True)
    return RunFolder(path)


def unused(parent: Path, name: str) -> Path:
    """The first of ``parent/name-1``, ``parent/name-2``, … that does not exist."""
    number = 1
    while (path := parent / f"{name}-{number}").exists():
        number += 1
    return path


def run_folder(
    settings: DataclassInstance, name: str, resume: Path | None, out: Path | None
) -> Path:
    """The folder to resume, or a new one with the settings in it."""
    if resume is not None:
        if out is not None:
            raise UserError(
                f"--resume and --out {out} were given; expected one of them, since a run continues "
                "in its own folder. Leave out --out."
            )
        return resume
    folder = create(out or unused(Path("runs"), name))
    folder.write_settings(settings)
    return folder.path


def provenance(packages: Iterable[str] = ("swor", "torch")) -> dict[str, Any]:
    """The command, and the versions of what it ran with."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    program = Path(sys.argv[0]).name
    started = ["python", "-m", "swor"] if program == "__main__.py" else [program]
    command = shlex.join([*started, *sys.argv[1:]])
    return {"command": command, "versions": versions, "threads": torch.get_num_threads()}


def _plain(content: Any) -> Any:
    """The same in types that JSON has."""
    if isinstance(content, Mapping):
        return {str(key): _plain(item) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(item) for item in content]
    if isinstance(content, Path) or (isinstance(content, float) and not math.isfinite(content)):
        return str(content)
    return content
