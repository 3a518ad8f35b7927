"""Checkpoints: everything that the rest of a run depends on, written whole, verified, never executed.

The file is what :func:`torch.save` writes, a ZIP archive with a CRC-32 of each record. PyTorch does not
verify these checksums when it loads a file, so they are verified here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic
from zipfile import BadZipFile, ZipFile

import torch

from reproduction.harness.errors import UserError, readable
from reproduction.harness.folder import replacing
from reproduction.harness.metrics import Meter
from reproduction.harness.task import Batch, Task

CHECKPOINT = "checkpoint.pt"


@dataclass
class RunState(Generic[Batch]):
    """How far a run has come.

    Attributes:
        task: the task, with its model and optimiser.
        processes: number of processes of the run.
        step: number of steps taken.
        log_bytes: number of bytes of ``metrics.jsonl`` at the last checkpoint.
        meter: the metrics that are not written yet.
    """

    task: Task[Batch]
    processes: int = 1
    step: int = 0
    log_bytes: int = 0
    meter: Meter = field(default_factory=Meter)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        content = {
            "position": {"step": self.step, "log_bytes": self.log_bytes},
            "processes": self.processes,
            "meter": {"count": self.meter.count, "totals": dict(self.meter.totals)},
            "model": self.task.model.state_dict(),
            "optimizer": self.task.optimizer.state_dict(),
            "task": self.task.state(),
        }
        write_checkpoint(path, content)

    def restore(self, path: Path) -> int:
        """Continue from a checkpoint, and return the number of processes that wrote it."""
        content = read_checkpoint(path)
        try:
            self.task.model.load_state_dict(content["model"])
            self.task.optimizer.load_state_dict(content["optimizer"])
            self.task.load_state(content["task"])
            self.step, self.log_bytes = (content["position"][n] for n in ("step", "log_bytes"))
            self.meter = Meter(**content["meter"])
            return int(content["processes"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} does not fit this run ({type(error).__name__}: {error}); expected the "
                "checkpoint that this run wrote. Restore the file from a copy, or start the run "
                "again in another folder."
            ) from error


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write tensors, numbers, strings and dicts of these."""
    with replacing(path) as draft, draft.open("wb") as file:
        torch.save(dict(content), file)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read what :func:`write_checkpoint` wrote, with the loader that accepts tensors and plain data only."""
    if not path.is_file():
        raise UserError(
            f"there is no {path}; expected the checkpoint of a run. Give the folder of a run that was "
            "started, or start one without resuming."
        )
    with readable(path, "a checkpoint that training wrote", Exception):  # damage can raise anything
        with ZipFile(path) as archive:
            if (damaged := archive.testzip()) is not None:
                raise BadZipFile(f"the checksum of {damaged} is not that of its content")
        return dict(torch.load(path, map_location="cpu", weights_only=True))
