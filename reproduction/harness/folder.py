"""The folder of a run: new, used by one process at a time, every file in it whole."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from reproduction.harness.errors import UserError, readable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from matplotlib.figure import Figure

DRAFT = ".draft"
DAMAGE = (AttributeError, ValueError, OSError, RecursionError)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
ROOM = (
    "expected room on the disk. Free some space, and run the command again, or resume the run: "
    "earlier files are whole"
)
PERMISSION = (
    "expected a folder that this user may write to. Change its permissions, or give another"
)


@contextmanager
def writing(path: Path, cure: str = PERMISSION) -> Iterator[None]:
    """Name the file that cannot be written for lack of room or of permission, with a cure for the latter."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL + FORBIDDEN:
            raise
        hint = ROOM if error.errno in FULL else cure
        raise UserError(f"{path} could not be written ({error.strerror}); {hint}.") from error


@contextmanager
def replacing(path: Path, cure: str = PERMISSION) -> Iterator[Path]:
    """Write a file whole or not at all: yield a draft beside it, which is flushed and then renamed."""
    draft = path.with_name(f".{path.stem}.{os.getpid()}{DRAFT}{path.suffix}")
    with writing(path, cure), ExitStack() as stack:
        path.parent.mkdir(parents=True, exist_ok=True)
        stack.callback(draft.unlink, missing_ok=True)
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())  # a rename may reach the disk before the content does
        os.replace(draft, path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder; drafts of a process that was killed are removed.

    The operating system holds the lock for this process, so that a process that was killed holds none.
    """
    with ExitStack() as stack:
        try:
            with writing(folder / ".lock"):
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(FileLock(folder / ".lock", blocking=False))
        except Timeout as error:
            raise UserError(
                f"{folder} is in use by another process; expected a folder that no other process "
                "writes to. Wait until that process has ended, stop it, or give another folder."
            ) from error
        for draft in folder.rglob(f".*{DRAFT}*"):
            draft.unlink(missing_ok=True)
        yield


@dataclass(frozen=True)
class RunFolder:
    r"""A folder of results. Every file in it is complete, however the run ends.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     folder = RunFolder(Path(directory))
    ...     folder.write_csv("squares.csv", [{"x": 1, "y": 1}, {"x": 2, "y": 4}]).read_text()
    'x,y\n1,1\n2,4\n'
    """

    path: Path

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file as UTF-8 with Unix line ends."""
        with replacing(self.path / name) as draft:
            draft.write_text(text, encoding="utf-8", newline="\n")
        return self.path / name

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a file that a person can read; infinities and NaN become strings."""
        text = json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)
        return self.write_text(name, text + "\n")

    def write_csv(self, name: str, rows: Sequence[Mapping[str, object]]) -> Path:
        """Write a table; the columns are the keys of the first row."""
        text = StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self.write_text(name, text.getvalue())

    def write_figure(self, name: str, figure: Figure) -> Path:
        """Write a figure, in the format that the suffix of its name says; PNG files carry its stamp."""
        from reproduction.harness.drawing import STAMP, stamp

        path = self.path / name
        metadata = {STAMP: stamp(figure)} if path.suffix == ".png" else None
        with replacing(path) as draft:
            figure.savefig(draft, dpi=150, metadata=metadata)
        return path

    def write_settings(self, settings: DataclassInstance) -> Path:
        """Write ``settings.json``: the settings, and the command and the versions of the first attempt."""
        path = self.path / "settings.json"
        first = read_json(path) if path.exists() else provenance()
        return self.write_json(path.name, first | {"settings": asdict(settings)})


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a file of JSON that a run wrote."""
    with readable(path, "the JSON object that a run wrote", *DAMAGE):
        return dict(json.loads(path.read_text(encoding="utf-8")).items())


def require_new(path: Path) -> None:
    """Refuse a path that is a file, or a folder with anything in it but the lock and drafts of a run."""
    if path.exists() and (not path.is_dir() or any(p.name[0] != "." for p in path.iterdir())):
        raise exists(path)


def exists(path: Path) -> UserError:
    """Return the error of a path that is not free."""
    return UserError(
        f"{path} exists; expected a new or empty folder, since nothing is ever overwritten. Give "
        "another folder with --out, resume the run that is in it, or remove it first."
    )


def create(path: Path | None, name: str = "") -> RunFolder:
    """Make a new folder; by default the first of ``runs/NAME-1``, ``runs/NAME-2``, … that does not exist.

    Of several processes that make the same folder at the same time, one succeeds.
    """
    if path is not None and path.is_dir():
        require_new(path)
        return RunFolder(path)
    paths = (Path("runs", f"{name}-{number}") for number in count(1)) if path is None else (path,)
    for made in paths:
        with writing(made), suppress(FileExistsError):
            made.mkdir(parents=True)
            return RunFolder(made)
    raise exists(made)


def open_folder(settings: DataclassInstance, name: str, *, out: Path | None) -> RunFolder:
    """Make a new folder as :func:`create` does, for the results of settings, which are written to it."""
    folder = create(out, name)
    folder.write_settings(settings)
    return folder


def provenance() -> dict[str, Any]:
    """Return the command and the versions that it runs with."""
    program = Path(sys.argv[0]).name
    started = ["python", "-m", "reproduction"] if program == "__main__.py" else [program]
    versions = {name: version(name) for name in ("swor", "torch")}
    return {
        "command": shlex.join([*started, *sys.argv[1:]]),
        "versions": {"python": platform.python_version()} | versions,
    }


def plain(content: Any) -> Any:
    """Return the same content in types that JSON has; infinities and NaN become strings."""
    if isinstance(content, Mapping):
        return {str(key): plain(item) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [plain(item) for item in content]
    if isinstance(content, Path) or (isinstance(content, float) and not math.isfinite(content)):
        return str(content)
    return content
