"""``swor vae``: train the categorical VAE with an estimator."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.data import load
from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder, create, unused
from swor.experiments.training import is_main, on_main, train
from swor.experiments.vae.settings import VAE
from swor.experiments.vae.task import VAETask

STOPPED = "Stopped at the end of a step, and saved. Continue with: swor vae --resume {path}"


def vae(settings: VAE) -> Path:
    """Train, and return the folder of the run.

    Args:
        settings: of the run; with ``resume``, those of the run with what may change.
    """
    task = VAETask(settings, load(settings.data, settings.data_dir))
    path = on_main(lambda: run_folder(settings), cpu=settings.cpu)
    finished = train(task, path, settings, resume=settings.resume is not None)
    if is_main(cpu=settings.cpu):
        RunFolder(path).write_settings(settings)  # a resumed run may have been given more epochs
        print(f"The run is in {path}" if finished else STOPPED.format(path=path))
    if not finished:
        raise KeyboardInterrupt
    return path


def run_folder(settings: VAE) -> Path:
    """The folder to resume, or a new one with the settings in it."""
    if settings.resume is not None:
        if settings.out is not None:
            raise UserError(
                f"--resume and --out {settings.out} were given; expected one of them, since a run "
                "continues in its own folder. Leave out --out."
            )
        return settings.resume
    name = f"vae-{settings.data}-{settings.dims}-{settings.estimator}"
    path = settings.out or unused(Path("runs"), name)
    create(path).write_settings(settings)
    return path
