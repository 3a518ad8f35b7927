"""``swor tsp``: train the Attention Model by one of the estimators of Figure 3."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.run import run
from swor.experiments.tsp.command import Tsp, new_settings, resumed_settings
from swor.experiments.tsp.model import save_model
from swor.experiments.tsp.task import TourTask

__all__ = ["Tsp", "tsp"]


def tsp(command: Tsp) -> Path:
    """Train, and return the folder of the run: settings, metrics, checkpoint, model.

    Args:
        command: what to do.
    """
    settings = new_settings(command) if command.resume is None else resumed_settings(command)
    task = TourTask(settings)
    return run(
        task,
        settings,
        command="tsp",
        name=f"tsp{settings.nodes}-{settings.estimator}",
        resume=command.resume,
        out=command.out,
        finish=lambda path: save_model(task.model, path / "model.safetensors"),
    )
