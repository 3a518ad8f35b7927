"""The lock of a folder: one holder at a time, who is named, and no lock that outlives its holder."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from reproduction.harness.errors import UserError
from reproduction.harness.lock import FolderLock, locked

HOLD = """
import sys, time
from pathlib import Path
from reproduction.harness.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_lock_has_one_holder_and_leaves_nothing(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(UserError, match="is in use by process"):
            FolderLock(tmp_path).acquire()
        assert (tmp_path / ".lock").exists()
    assert not list(tmp_path.iterdir())
    with locked(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"in use by process {holder.pid} on .* since 20"):
            FolderLock(tmp_path).acquire()
        holder.kill()
        holder.wait()
    assert f'"process": {holder.pid}' in (tmp_path / ".lock").read_text()
    with locked(tmp_path):
        assert f'"process": {holder.pid}' not in (tmp_path / ".lock").read_text()


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, flock = FolderLock(tmp_path), fcntl.flock
    first.acquire()

    def late(file: object, operation: int) -> None:
        first.release()  # after the second one has opened the file
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    second = FolderLock(tmp_path)
    second.acquire()
    assert (tmp_path / ".lock").exists()
    with pytest.raises(UserError, match="in use"):
        FolderLock(tmp_path).acquire()
    second.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_without_locks_nothing_is_locked(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: object, operation: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    if number == errno.ENOLCK:
        with locked(tmp_path), locked(tmp_path):
            assert (tmp_path / ".lock").exists()
    else:
        with pytest.raises(OSError, match="no locks"):
            FolderLock(tmp_path).acquire()
