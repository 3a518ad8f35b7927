"""Steps for tests. Their processes import this module, so it imports nothing that takes time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def write(text: str, out: Path) -> None:
    out.mkdir()
    (out / "x").write_text(text)


def write_threads(out: Path) -> None:
    import torch

    write(str(torch.get_num_threads()), out)


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


def stop_after(name: str, out: Path) -> None:
    """Fail after writing a file; succeed if the file exists already."""
    if not (out / name).exists():
        out.mkdir()
        (out / name).touch()
        raise RuntimeError("stopped")


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
