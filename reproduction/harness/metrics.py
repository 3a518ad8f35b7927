"""What a run reports: ``metrics.jsonl``, TensorBoard events and a progress bar."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reproduction.harness.errors import UserError
from reproduction.harness.folder import plain, writing


class Meter:
    """Means of metrics over the steps since it was cleared."""

    def __init__(self) -> None:
        self.count = 0
        self.totals: dict[str, float] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step."""
        self.count += 1
        for name, number in metrics.items():
            self.totals[name] = self.totals.get(name, 0.0) + number

    def means(self) -> dict[str, float]:
        """Return the mean of each metric, and the number of steps."""
        means = {name: total / self.count for name, total in self.totals.items()}
        return means | {"steps": self.count}

    def clear(self) -> None:
        """Forget all steps."""
        self.count, self.totals = 0, {}


class Records:
    """Appends lines such as ``{"split": "valid", "step": 275, "epoch": 1, "loss": 98.5, …}``.

    The key ``seconds`` is the wall-clock time since this process began. It is the only number that
    differs when a run is repeated.

    Args:
        folder: of the run.
        step: of the checkpoint that the run continues from; 0 for a new run.
        size: bytes of ``metrics.jsonl`` at that checkpoint; lines written after it are dropped,
            since their steps are repeated.
        enabled: only the main process writes.
    """

    def __init__(self, folder: Path, step: int, size: int, *, enabled: bool) -> None:
        self.path, self.step, self.start = folder / "metrics.jsonl", step, size
        self.enabled = enabled

    def __enter__(self) -> Self:
        if self.enabled:
            from torch.utils.tensorboard import SummaryWriter

            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            self._require_whole()
            os.truncate(self.path, self.start)
            purge = self.step + 1 if self.start else None
            self.board = SummaryWriter(str(self.path.parent / "tensorboard"), purge_step=purge)
            self.began = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.enabled:
            with writing(self.path.parent / "tensorboard"):
                self.board.close()

    def write(self, split: str, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        """Append a line, and write the same numbers as TensorBoard scalars."""
        if not self.enabled:
            return
        seconds = round(time.perf_counter() - self.began, 3)
        line = {"split": split, "step": step, "epoch": epoch, **metrics, "seconds": seconds}
        with writing(self.path):
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain(line), allow_nan=False) + "\n")
            for name, number in metrics.items():
                self.board.add_scalar(f"{split}/{name}", number, step)

    def _require_whole(self) -> None:
        size = self.path.stat().st_size
        if size < self.start:
            raise UserError(
                f"{self.path} has {size} bytes; expected at least the {self.start} that it had at the "
                "checkpoint. It was cut or removed: restore it, or start the run again in another "
                "folder."
            )

    def size(self) -> int:
        """Return the number of bytes written so far."""
        return self.path.stat().st_size if self.enabled else 0


def read_records(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """The lines of a split in the ``metrics.jsonl`` of a run.

    JSON has no infinities and no NaN. They are strings in the file, and numbers here.
    """
    path = folder / "metrics.jsonl"
    if not path.exists():
        raise UserError(
            f"there is no {path}; expected the folder of a training run. Give the folder that "
            "training reported."
        )
    *lines, _ = path.read_text(encoding="utf-8").split("\n")  # the last may be being written
    for number, line in enumerate(lines, 1):
        try:
            record: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"line {number} of {path} cannot be read ({error}); expected a line that training "
                "wrote. Restore the file, or remove the line."
            ) from error
        if record["split"] == split:
            yield {name: _number(name, value) for name, value in record.items()}


def _number(name: str, value: Any) -> Any:
    return float(value) if name != "split" and isinstance(value, str) else value


def last_step(folder: Path) -> int:
    """The highest step in the ``metrics.jsonl`` of a run; 0 if there is no such file."""
    if not (folder / "metrics.jsonl").exists():
        return 0
    return max((r["step"] for s in ("train", "valid") for r in read_records(folder, s)), default=0)


class Bar:
    """A progress bar with loss, throughput and time left; above it, a line for every epoch.

    Args:
        steps: number of steps of an epoch.
        examples: number of records in a step.
        epochs: number of epochs.
        start: number of steps that were taken before.
        enabled: only the main process shows it.
    """

    def __init__(
        self, steps: int, examples: int, epochs: int, start: int, *, enabled: bool
    ) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.steps, self.examples, self.epochs, self.enabled = steps, examples, epochs, enabled
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[rate]} examples/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            disable=not enabled,
        )
        self.bar = self.progress.add_task(
            "", total=epochs * steps, completed=start, epoch=f"0/{epochs}", loss="-", rate="-"
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def advance(self, loss: float) -> None:
        """Show one more step."""
        if not self.enabled:
            return
        bar = self.progress.tasks[0]
        epoch = f"{int(bar.completed) // self.steps + 1}/{self.epochs}"
        rate = f"{bar.speed * self.examples:,.0f}" if bar.speed else "-"
        self.progress.update(self.bar, advance=1, epoch=epoch, loss=f"{loss:.3f}", rate=rate)

    def report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Print a line with the validation of an epoch."""
        if self.enabled:
            numbers = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items())
            self.progress.console.print(f"epoch {epoch:>4}  {numbers}", highlight=False)
