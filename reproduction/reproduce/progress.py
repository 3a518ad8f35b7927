"""The lines that a reproduction prints while its steps run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from reproduction.reproduce.execution import RUNNING, Outcome, last_line, outcome
from reproduction.reproduce.steps import Step

EVERY = 20.0  # seconds between two signs of life


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(40), duration(600), duration(36_000), duration(2_000_000)
    ('40 s', '10 min', '10 h', '23 days')
    """
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def print_ended(ended: Outcome, console: Console) -> None:
    """Print how a step has ended."""
    result = f"FAILED, {ended.error}" if ended.error else "done"
    console.print(f"{duration(ended.seconds):>8}  {ended.name}: {result}", markup=False)


@contextmanager
def signs_of_life(steps: Sequence[Step], folder: Path, console: Console) -> Iterator[None]:
    """Within this context, print regularly which steps run, how long, and what they wrote last."""
    since, stop = time.time(), threading.Event()

    def tell() -> None:
        while not stop.wait(EVERY):
            for line in running(steps, folder, since):
                console.print(line, markup=False, style="dim", overflow="ellipsis", no_wrap=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def running(steps: Sequence[Step], folder: Path, since: float) -> Iterator[str]:
    """Yield a line about each step that has begun after a point in time and has not ended."""
    for step in steps:
        state = outcome(folder, step.name)
        if state is not None and state.error == RUNNING:
            began = (folder / "outcomes" / f"{step.name}.json").stat().st_mtime
            if began >= since:
                said = last_line(folder / "logs" / f"{step.name}.txt")
                yield f"{duration(time.time() - began):>8}  {step.name}: {said or 'begins'}"
