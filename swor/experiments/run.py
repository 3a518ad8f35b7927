"""A training command from start to end: its folder, the training, and what it says at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from swor.experiments.folder import run_folder
from swor.experiments.task import Batch, Task, Training
from swor.experiments.training import is_main, on_main, train

STOPPED = "Stopped at the end of a step, and saved. Continue with: swor {command} --resume {path}"


def run(
    task: Task[Batch],
    settings: Training,
    *,
    command: str,
    name: str,
    resume: Path | None,
    out: Path | None,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Train a task in its folder, and return the folder.

    Args:
        task: what is trained.
        settings: of the run.
        command: its name on the command line.
        name: of a new folder below ``runs``, if ``out`` names none.
        resume: the folder of a run to continue, or None.
        out: the folder of a new run, or None.
        finish: what is left to do in the folder when training has finished.
    """
    path = on_main(lambda: run_folder(settings, name, resume, out), cpu=settings.cpu)
    finished = train(task, path, settings, resume=resume is not None)
    if is_main(cpu=settings.cpu):
        if finished and finish is not None:
            finish(path)
        ended = f"The run is in {path}"
        print(ended if finished else STOPPED.format(command=command, path=path))
    if not finished:
        raise KeyboardInterrupt
    return path
