"""Checkpoints: written whole or not at all, and read without running any code in them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swor.experiments.errors import UserError
from swor.experiments.records import Meter
from swor.experiments.resume import as_json, require_same

if TYPE_CHECKING:
    from swor.experiments.task import Task, Training

FORMAT = 1


@dataclass
class Position:
    """How far a run is: steps taken, and bytes of metrics.jsonl written."""

    step: int = 0
    log_bytes: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The file from which a run is resumed."""

    path: Path

    def require_none(self) -> None:
        """Refuse to overwrite a run."""
        if self.path.exists():
            raise UserError(
                f"{self.path} exists; expected a folder without a run. Resume the run, or give "
                "another folder."
            )

    def save(self, task: Task[Any], settings: Training, position: Position, meter: Meter) -> None:
        """Write everything that the rest of the run depends on."""
        content = {
            "format": FORMAT,
            "settings": as_json(settings),
            "position": asdict(position),
            "meter": {"count": meter.count, "totals": dict(meter.totals)},
            "model": task.model.state_dict(),
            "optimizer": task.optimizer.state_dict(),
            "task": task.state(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        torch.save(content, part)
        _publish(part, self.path)

    def load(self) -> dict[str, Any]:
        """Read it, with the loader that accepts tensors and plain data only."""
        if not self.path.exists():
            raise UserError(
                f"there is no {self.path}; expected the checkpoint of a run. Give the folder of a "
                "run that was started, or start one without resuming."
            )
        try:
            content: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise UserError(
                f"{self.path} cannot be read ({type(error).__name__}); expected a checkpoint that "
                "training wrote. Restore the file, or start the run again in another folder."
            ) from error
        if content.get("format") != FORMAT:
            raise UserError(
                f"{self.path} has format {content.get('format')!r}; expected {FORMAT}. It was "
                "written by another version: start the run again in another folder."
            )
        return content


def resume_from(
    checkpoint: Checkpoint, task: Task[Any], settings: Training, meter: Meter
) -> Position:
    """Continue from a checkpoint that was written with the same settings."""
    content = checkpoint.load()
    require_same(json.loads(content["settings"]), settings, checkpoint.path)
    task.model.load_state_dict(content["model"])
    task.optimizer.load_state_dict(content["optimizer"])
    task.load_state(content["task"])
    meter.count, meter.totals = content["meter"]["count"], content["meter"]["totals"]
    return Position(**content["position"])


def keep_model(path: Path, model: nn.Module) -> None:
    """Write the weights of a model, as safetensors."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file({name: t.contiguous() for name, t in model.state_dict().items()}, part)
    _publish(part, path)


def part_of(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights of the part of a model that a prefix names, such as ``"encoder."``."""
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


def load_model(path: Path, model: nn.Module, *, prefix: str = "") -> None:
    """Read the weights that :func:`keep_model` wrote.

    Args:
        path: the file.
        model: what to load into: the model itself, or the part of it that ``prefix`` names.
        prefix: such as ``"encoder."``; weights of other parts are left aside.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.exists():
        raise UserError(f"there is no {path}; expected a kept model. Train with --keep-every.")
    try:
        model.load_state_dict(part_of(load_file(path), prefix))
    except (SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); expected the weights of this model, as training "
            "kept them. Restore the file, or train again."
        ) from error


def _publish(part: Path, path: Path) -> None:
    """Put a finished file in place, so that there is never half of one under its name."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
