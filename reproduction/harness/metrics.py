"""The metrics of a run: ``metrics.jsonl``, which figures read, the trackers, and a progress bar."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.harness.errors import LARGEST, UserError, readable
from reproduction.harness.folder import plain, writing

if TYPE_CHECKING:
    from accelerate import Accelerator

METRICS = "metrics.jsonl"
TIMED, NOTICED = 5, 5.0  # steps and seconds after which the time of the rest is estimated
WORTH_SAYING = 60.0  # seconds


@dataclass
class Meter:
    """Means of metrics over the steps since it was made."""

    count: int = 0
    totals: dict[str, float] = field(default_factory=dict)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step."""
        self.count += 1
        for name, number in metrics.items():
            self.totals[name] = self.totals.get(name, 0.0) + number

    def means(self) -> dict[str, float]:
        """Return the mean of each metric, and the number of steps."""
        means = {name: total / self.count for name, total in self.totals.items()}
        return means | {"steps": self.count}


class Records:
    """Appends lines such as ``{"split": "valid", "step": 275, "epoch": 1, "loss": 98.5, …}``.

    The key ``seconds`` is the wall-clock time since this process began. It is the only number that
    differs when a run is repeated. Only the main process writes.

    Args:
        folder: of the run.
        size: bytes of ``metrics.jsonl`` at the checkpoint that the run continues from; lines written
            after it are dropped, since their steps are repeated.
        accelerator: has the trackers, which get the same numbers.
    """

    def __init__(self, folder: Path, size: int, accelerator: Accelerator) -> None:
        self.path, self.accelerator, self.began = folder / METRICS, accelerator, time.perf_counter()
        if accelerator.is_main_process:
            with writing(self.path):
                self.path.touch()
            if (found := self.size()) < size:
                raise UserError(
                    f"{self.path} has {found} bytes; expected at least the {size} that it had at the "
                    "checkpoint. It was cut or removed: restore it, or start the run again in "
                    "another folder."
                )
            os.truncate(self.path, size)

    def write(self, split: str, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Append a line, and pass the same numbers to the trackers."""
        if not self.accelerator.is_main_process:
            return
        seconds = round(time.perf_counter() - self.began, 3)
        line = {"split": split, "step": step, "epoch": epoch, **metrics, "seconds": seconds}
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(line), allow_nan=False) + "\n")
        self.accelerator.log({f"{split}/{n}": m for n, m in metrics.items()}, step=step)

    def size(self) -> int:
        """Return the number of bytes written so far."""
        return self.path.stat().st_size if self.path.exists() else 0


def read_records(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """Read the lines of a split in the ``metrics.jsonl`` of a run.

    JSON has no infinities and no NaN. They are strings in the file, and numbers here.
    """
    path = folder / METRICS
    if not path.exists():
        raise UserError(
            f"there is no {path}; expected the folder of a training run. Give the folder that "
            "training reported."
        )
    with readable(path, "the text that training wrote", ValueError):
        *lines, _ = path.read_text(encoding="utf-8").split("\n")  # the last may be being written
    damage = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
    for number, line in enumerate(lines, 1):
        place = f"line {number} of {path}"
        with readable(place, "a line that training wrote", *damage):
            record = json.loads(line)
            found = record.pop("split")
            numbers = {name: _number(name, value) for name, value in record.items()}
        if found == split:
            yield Record(place, {"split": split} | numbers)


class Record(dict[str, Any]):
    """A line of metrics; a metric that it lacks is an error that names the line."""

    def __init__(self, place: str, metrics: Mapping[str, Any]) -> None:
        super().__init__(metrics)
        self.place = place

    def __missing__(self, name: str) -> Any:
        raise UserError(
            f"{self.place} has no {name!r}, but {', '.join(self)}; expected a line that training wrote. "
            "Restore the file from a copy, or give the folder of a run of this experiment."
        )


def _number(name: str, value: Any) -> float:
    """Return a number of a line; steps and epochs are counted."""
    if name in ("step", "epoch") and not (type(value) is int and 0 <= value < LARGEST):
        raise ValueError(f"the {name} is {value!r}")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{name} is {value!r}")
    return value if isinstance(value, int) and abs(value) < LARGEST else float(value)


def last_step(folder: Path) -> int:
    """Return the highest step in the ``metrics.jsonl`` of a run; 0 if there is no such file."""
    if not (folder / METRICS).exists():
        return 0
    return max((r["step"] for s in ("train", "valid") for r in read_records(folder, s)), default=0)


class Bar:
    """A progress bar with loss, throughput and time left; above it, a line for every epoch."""

    def __init__(self, steps: int, examples: int, start: int, *, enabled: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        self.examples = examples
        columns = (BarColumn(), MofNCompleteColumn(), "{task.description}", TimeRemainingColumn())
        self.progress = Progress(*columns, disable=not enabled)
        self.bar = self.progress.add_task("", total=steps, completed=start)
        self.left, self.timed, self.estimated = steps - start, 0, False

    def advance(self, loss: float) -> None:
        """Show one more step; once a few steps tell their time, say how long the rest takes."""
        rate = (self.progress.tasks[0].speed or 0.0) * self.examples
        shown = f"loss {loss:.3f}, {rate:,.0f} examples/s"
        self.progress.update(self.bar, advance=1, description=shown)
        self.left -= 1
        if self.timed == 0:
            self.began = time.perf_counter()  # after the first step, which prepares others
        self._estimate(time.perf_counter() - self.began)
        self.timed += 1

    def _estimate(self, seconds: float) -> None:
        if self.estimated or self.timed < TIMED or seconds < NOTICED:
            return
        self.estimated, rest = True, self.left * seconds / self.timed
        if rest >= WORTH_SAYING and not self.progress.disable:
            said = f"{self.left:,} steps remain: about {duration(rest)}, validations not counted"
            self.progress.console.print(said, highlight=False)

    def report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Print a line with the validation of an epoch."""
        if not self.progress.disable:
            numbers = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items())
            self.progress.console.print(f"epoch {epoch:>4}  {numbers}", highlight=False)


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(40), duration(600), duration(36_000), duration(2_000_000)
    ('40 s', '10 min', '10 h', '23 days')
    """
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
