"""What training shows on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self


class Sized(Protocol):
    """What the bar needs to know of a task."""

    steps: int
    examples: int


class Bar:
    """A progress bar with loss, throughput and time left; a line per epoch above it."""

    def __init__(self, task: Sized, epochs: int, start: int, *, enabled: bool) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.examples = task.examples
        self.enabled = enabled
        self.progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[rate]} examples/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            disable=not enabled,
        )
        self.steps, self.epochs = task.steps, epochs
        self.bar = self.progress.add_task(
            "", total=epochs * task.steps, completed=start, epoch=f"0/{epochs}", loss="-", rate="-"
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
        """One step further."""
        if not self.enabled:
            return
        bar = self.progress.tasks[0]
        epoch = f"{int(bar.completed) // self.steps + 1}/{self.epochs}"
        rate = f"{bar.speed * self.examples:,.0f}" if bar.speed else "-"
        self.progress.update(self.bar, advance=1, epoch=epoch, loss=f"{loss:.3f}", rate=rate)

    def report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """A line with the validation of an epoch."""
        if self.enabled:
            numbers = "  ".join(f"{name} {number:.4f}" for name, number in metrics.items())
            self.progress.console.print(f"epoch {epoch:>4}  {numbers}", highlight=False)
