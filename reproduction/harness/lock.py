"""A run folder has one process that writes to it: the lock names it, and ends with it.

The operating system holds the lock for the process. So a process that was killed, or a machine that
was switched off, leaves no lock behind that anybody would have to remove, and a number of a process
that was given away again cannot be mistaken for it.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from reproduction.harness.errors import UserError
from reproduction.harness.folder import remove_drafts, writing

NAME = ".lock"
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of some network file systems


class FolderLock:
    """The right to write to a folder, from :meth:`acquire` to :meth:`release`.

    Where there are no such locks, as on Windows and some network file systems, nothing is locked.

    Args:
        folder: which is made if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.file: IO[str] | None = None

    def acquire(self) -> Path:
        """Lock the folder, and return it; a process that holds it already is named in the error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while self.file is None:
            with ExitStack() as stack:
                file = stack.enter_context(self.path.open("a+", encoding="utf-8"))
                if not _lock(file):
                    raise self._held()
                if _is_still(file, self.path):  # its last holder may have removed it meanwhile
                    self.file = file
                    stack.pop_all()
        self._sign(self.file)
        remove_drafts(self.path.parent)
        return self.path.parent

    def release(self) -> None:
        """Unlock the folder, if this process had locked it."""
        if self.file is not None:
            self.path.unlink(missing_ok=True)  # while it is ours
            self.file.close()
            self.file = None

    def _sign(self, file: IO[str]) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        file.truncate(0)
        with writing(self.path):
            json.dump({"process": os.getpid(), "host": platform.node(), "since": now}, file)
            file.flush()

    def _held(self) -> UserError:
        try:
            holder = json.loads(self.path.read_text(encoding="utf-8"))
            name = f"process {holder['process']} on {holder['host']} since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):  # it has only just begun, or ended
            name = "another process"
        return UserError(
            f"{self.path.parent} is in use by {name}; expected a folder that no other process "
            "writes to. Wait until that process has ended, stop it, or give another folder."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within it, no other process that asks for the lock writes to a folder.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory, locked(Path(directory)):
    ...     sorted(path.name for path in Path(directory).iterdir())
    ['.lock']
    """
    lock = FolderLock(folder)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _lock(file: IO[str]) -> bool:
    """Lock an open file; False if another process, or another part of this one, holds it."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _is_still(file: IO[str], path: Path) -> bool:
    """Whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
