"""``swor tsp``: train the Attention Model by one of the estimators of Figure 3."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.folder import RunFolder, create, unused
from swor.experiments.training import is_main, on_main, train
from swor.experiments.tsp.command import Tsp, new_settings, read_settings, resumed_settings
from swor.experiments.tsp.model import save_model
from swor.experiments.tsp.settings import TspSettings
from swor.experiments.tsp.task import TourTask

__all__ = ["Tsp", "tsp"]

STOPPED = "Stopped at the end of a step, and saved. Continue with: swor tsp --resume {path}"


def tsp(command: Tsp) -> Path:
    """Train, and return the folder of the run: settings, metrics, checkpoint, model.

    Args:
        command: what to do.
    """
    settings = new_settings(command) if command.resume is None else resumed_settings(command)
    task = TourTask(settings)
    path = on_main(lambda: run_folder(command, settings), cpu=settings.cpu)
    finished = train(task, path, settings, resume=command.resume is not None)
    if is_main(cpu=settings.cpu):
        if finished:
            finish(task, path, settings)
        print(f"The run is in {path}" if finished else STOPPED.format(path=path))
    if not finished:
        raise KeyboardInterrupt
    return path


def run_folder(command: Tsp, settings: TspSettings) -> Path:
    """The folder to resume, or a new one with the settings in it."""
    if command.resume is not None:
        return command.resume
    name = f"tsp{settings.nodes}-{settings.estimator}"
    folder = create(command.out or unused(Path("runs"), name))
    folder.write_settings(settings)
    return folder.path


def finish(task: TourTask, path: Path, settings: TspSettings) -> None:
    """Write the model, and the settings if it was given more steps than at first."""
    save_model(task.model, path / "model.safetensors")
    if settings != read_settings(path):
        RunFolder(path).write_settings(settings)
