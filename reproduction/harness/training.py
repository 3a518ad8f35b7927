"""Training runs: a task, trained in a folder that can be resumed, on one process or on several.

A :class:`reproduction.harness.task.Task` says what is trained, on which batches, and how it is
validated. :func:`train` does the rest, on one process or, started by ``torchrun`` or ``accelerate
launch``, on P of them.

Batches and noise are functions of their place in the run (seed, epoch, step, process). So no two
processes draw the same noise, and a run that was killed continues from its last checkpoint to the
numbers that it would have reached: there is no state of a random generator to lose.

The records of a batch are split over the processes. The k samples of one record are not: weights and
baselines of samples without replacement depend on all k together, and k / P of them on each process
would be P separate samples, which may repeat each other. To use more processes, give each more records.

If a process dies, the others end with an error that says so, and the run is resumed from the last
checkpoint, which is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reproduction.harness.folder import open_folder, require_new
from reproduction.harness.lock import FolderLock
from reproduction.harness.loop import Loop
from reproduction.harness.models import keep_model
from reproduction.harness.processes import connect, is_main, on_main, together
from reproduction.harness.settings import TrainingSettings
from reproduction.harness.task import Batch, Task

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STOPPED = (
    "Stopped at the end of a step, and saved. "
    "Continue with: python -m reproduction {command} --resume {path}"
)


def run(
    make: Callable[[], Task[Batch]],
    settings: TrainingSettings,
    *,
    command: str,
    name: str,
    kept: DataclassInstance | None = None,
) -> Path:
    """Train a task in the folder that the settings name, and return the folder.

    The weights at the end are in ``model.safetensors``.

    Args:
        make: makes what is trained; called when it is clear that the folder can be used, since it
            may take minutes.
        settings: of the run.
        command: its name on the command line.
        name: of a new folder in ``runs``, if the settings name none.
        kept: the settings that the model is built from, which are kept beside its weights.
    """

    def check() -> Path:
        if settings.out is not None and settings.resume is None:
            require_new(settings.out)
        return Path()

    def folder() -> Path:
        return open_folder(settings, name, out=settings.out, resume=settings.resume).path

    on_main(check, cpu=settings.cpu)
    task = make()
    path = on_main(folder, cpu=settings.cpu)
    finished = train(task, path, settings, resume=settings.resume is not None)
    if is_main(cpu=settings.cpu):
        if finished:
            keep_model(path / "model.safetensors", task.model, kept)
        ended = f"The run is in {path}"
        print(ended if finished else STOPPED.format(command=command, path=path))
    if not finished:
        raise KeyboardInterrupt
    return path


def train(
    task: Task[Batch], folder: Path, settings: TrainingSettings, *, resume: bool = False
) -> bool:
    """Train a task in a folder: checkpoint, metrics.jsonl, TensorBoard events, kept models.

    Args:
        task: what is trained.
        folder: where everything is written.
        settings: of the run; they are saved, and must be the same when the run is resumed.
        resume: continue from the checkpoint in the folder, or from the beginning if the run ended
            before it wrote one.

    Returns:
        Whether training finished. It did not if it was interrupted (Ctrl-C); then everything is
        saved for another call with ``resume``.
    """
    loop, lock = Loop(task, folder, settings, connect(cpu=settings.cpu)), FolderLock(folder)
    try:
        with together(loop.accelerator.num_processes):
            on_main(lock.acquire, cpu=settings.cpu)
            return loop.run(resume=resume)
    finally:
        lock.release()
        loop.accelerator.end_training()
