"""``swor lm``: train a small language model by the reward of its completions."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder, create, unused
from swor.experiments.lm.settings import LanguageModel
from swor.experiments.lm.task import SortingTask
from swor.experiments.training import is_main, on_main, train

STOPPED = "Stopped at the end of a step, and saved. Continue with: swor lm --resume {path}"


def lm(settings: LanguageModel) -> Path:
    """Train, and return the folder of the run.

    Args:
        settings: of the run; with ``resume``, those of the run with what may change.
    """
    settings.check()
    task = SortingTask(settings)
    path = on_main(lambda: run_folder(settings), cpu=settings.cpu)
    finished = train(task, path, settings, resume=settings.resume is not None)
    if is_main(cpu=settings.cpu):
        RunFolder(path).write_settings(settings)  # a resumed run may have been given more epochs
        print(f"The run is in {path}" if finished else STOPPED.format(path=path))
    if not finished:
        raise KeyboardInterrupt
    return path


def run_folder(settings: LanguageModel) -> Path:
    """The folder to resume, or a new one with the settings in it."""
    if settings.resume is not None:
        if settings.out is not None:
            raise UserError(
                f"--resume and --out {settings.out} were given; expected one of them, since a run "
                "continues in its own folder. Leave out --out."
            )
        return settings.resume
    path = settings.out or unused(Path("runs"), f"lm-{settings.estimator}")
    create(path).write_settings(settings)
    return path
