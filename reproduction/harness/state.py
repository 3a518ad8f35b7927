"""The state of a run: everything that the rest of it depends on, which a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from reproduction.harness.errors import UserError
from reproduction.harness.metrics import Meter, last_step
from reproduction.harness.settings import TrainingSettings, as_json, read_settings, require_same
from reproduction.harness.task import Batch, Task


@dataclass
class RunState(Generic[Batch]):
    """How far a run has come.

    Attributes:
        task: what is trained, with its model and optimiser.
        settings: of the run.
        step: number of steps taken.
        log_bytes: number of bytes of ``metrics.jsonl`` at the last checkpoint.
        meter: the metrics that are not written yet.
    """

    task: Task[Batch]
    settings: TrainingSettings
    step: int = 0
    log_bytes: int = 0
    meter: Meter = field(default_factory=Meter)

    def content(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "settings": as_json(self.settings),
            "position": {"step": self.step, "log_bytes": self.log_bytes},
            "meter": {"count": self.meter.count, "totals": dict(self.meter.totals)},
            "model": self.task.model.state_dict(),
            "optimizer": self.task.optimizer.state_dict(),
            "task": self.task.state(),
        }

    def restore(self, content: Mapping[str, Any], path: Path) -> None:
        """Continue from what :meth:`content` returned, with the same settings.

        Args:
            content: of the checkpoint.
            path: that it was read from, for errors.
        """
        require_same(content["settings"], self.settings, path)
        self.task.model.load_state_dict(content["model"])
        self.task.optimizer.load_state_dict(content["optimizer"])
        self.task.load_state(content["task"])
        self.step, self.log_bytes = content["position"]["step"], content["position"]["log_bytes"]
        self.meter.count, self.meter.totals = content["meter"]["count"], content["meter"]["totals"]

    def require_epochs(self) -> None:
        """Refuse to end a run before the step that it has reached."""
        had = self.step / self.task.steps
        if had > self.settings.epochs:
            raise UserError(
                f"epochs is {self.settings.epochs}, but the run has had {had:g}; expected at least as "
                "many. Resume it with more, or not at all."
            )


def never_saved(folder: Path, settings: TrainingSettings) -> bool:
    """Whether a folder without a checkpoint has the settings of a run, the same as now, and no step."""
    if not (folder / "settings.json").exists():
        return False
    if last_step(folder) > 0:
        return False  # there was a checkpoint, and it was removed
    stored = read_settings(type(settings), folder)
    require_same(as_json(stored), settings, folder / "settings.json")
    return True
