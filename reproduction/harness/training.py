"""Training runs: a task, trained in a folder that can be resumed, on one process or on several.

A :class:`reproduction.harness.task.Task` has a model, batches, a loss and a validation. :func:`train`
does the rest, on one process or, started by ``torchrun`` or ``accelerate launch``, on P of them.

Batches and noise are functions of their place in the run (seed, epoch, step, process). So no two
processes draw the same noise, and a run that was killed continues from its last checkpoint to the
numbers that it would have reached: there is no state of a random generator to lose.

The records of a batch are split over the processes. The k samples of one record are not: weights and
baselines of samples without replacement depend on all k together, and k / P of them on each process
would be P separate samples, which may repeat each other. To use more processes, give each more records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from reproduction.harness.folder import create, locked, require_new
from reproduction.harness.loop import Loop
from reproduction.harness.models import MODEL, keep_model
from reproduction.harness.processes import connect, from_main, together
from reproduction.harness.settings import TrainingSettings, read_settings, require_same
from reproduction.harness.task import Batch, Task

SHORTER = (
    "Give fewer for a shorter run. Ctrl-C stops it at the end of a step; --resume continues it."
)


def run(
    make: Callable[[], Task[Batch]], settings: TrainingSettings, *, command: str, name: str
) -> Path:
    """Train a task in the folder that the settings name, and return the folder.

    The weights at the end are in ``model.safetensors``.

    Args:
        make: makes the task; called when the folder is locked and can be used, since it may take
            minutes.
        settings: of the run.
        command: its name on the command line.
        name: of a new folder in ``runs``, if the settings name none.
    """
    with together():
        accelerator = connect(settings)
        path = settings.resume or from_main(accelerator, lambda: create(settings.out, name).path)

    def announced() -> Task[Batch]:
        if accelerator.is_main_process:
            print(f"The run in {path} has {settings.length}. {SHORTER}", flush=True)
        return make()

    finished = train(announced, path, settings, resume=settings.resume is not None)
    if accelerator.is_main_process:
        if finished:
            print(f"The run is in {path}")
        else:
            again = f"python -m reproduction {command} --resume {path}"
            print(f"Stopped at the end of a step, and saved. Continue with: {again}")
    if not finished:
        raise KeyboardInterrupt
    return path


def train(
    make: Callable[[], Task[Batch]],
    folder: Path,
    settings: TrainingSettings,
    *,
    resume: bool = False,
) -> bool:
    """Train a task in a folder, and return whether it finished; after Ctrl-C it can be resumed.

    A run that ended before its first checkpoint is resumed from its beginning. The folder is locked,
    and its settings are compared, before the task is made.
    """
    accelerator = connect(settings, folder)
    with together(), ExitStack() as stack:
        if accelerator.is_main_process:
            stack.enter_context(locked(folder))
        if resume:
            before = read_settings(type(settings), folder)
            require_same(before, settings, folder / "settings.json")
        elif accelerator.is_main_process:
            require_new(folder)  # another process may have trained in it before the lock was free
        task = make()
        stack.callback(accelerator.end_training)
        finished = Loop(task, folder, settings, accelerator).run(resume=resume)
        if finished and accelerator.is_main_process:
            keep_model(folder / MODEL, task.model, task.model_settings)
        return finished
