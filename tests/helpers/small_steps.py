"""A program with small steps for tests, in the place of ``reproduction.alone``."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from reproduction.alone import stop_with_parent


def write(out: Path) -> None:
    out.mkdir()
    (out / "threads").write_text(os.environ["OMP_NUM_THREADS"])


def note(out: Path) -> None:
    """Append the name of the step to a file."""
    with (out.parent / "noted.txt").open("a") as file:
        file.write(f"{out.name}\n")


def fail(out: Path) -> None:
    out.mkdir()
    raise RuntimeError("no luck")


def succeed_later(out: Path) -> None:
    if not (out.parent / "ready").exists():
        raise RuntimeError("not yet")


def stop_after(out: Path, name: str) -> None:
    """Fail after writing a file; succeed if the file exists already."""
    if not (out / name).exists():
        out.mkdir()
        (out / name).touch()
        raise RuntimeError("stopped")
    assert "--resume" in sys.argv


def linger(out: Path) -> None:
    """Note the process, and take much longer than the test."""
    out.mkdir()
    (out / "pid.txt").write_text(str(os.getpid()))
    time.sleep(600)


def be_killed(out: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def speak(out: Path) -> None:
    print("epoch 7")
    while not (out.parent / "enough").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    stop_with_parent()
    name, *given, _, folder = sys.argv[1:]  # the last two are --out or --resume, and the folder
    globals()[name](Path(folder), *given)
