r"""Communication between the processes of a run: $\frac1P \sum_r \nabla L_r$, weights and batch statistics.

Accelerate connects the processes, and its ``Accelerator`` says which of them this one is. The model is not
passed to ``Accelerator.prepare``, whose hooks expect one call of the whole model in each step: an
estimator may call parts of the model several times and differentiate on its own. Gradients are averaged
here instead. A missing gradient counts as 0 if any process has one; otherwise it stays None.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from reproduction.harness.errors import UserError
from reproduction.harness.folder import plain
from reproduction.harness.settings import TrainingSettings

if TYPE_CHECKING:
    from accelerate import Accelerator

Made = TypeVar("Made")


def connect(settings: TrainingSettings, folder: Path | None = None) -> Accelerator:
    """Connect this process with those launched with it, and prepare the trackers if there is a folder."""
    from accelerate import Accelerator

    for name in settings.track:
        if find_spec(name) is None:  # accelerate would leave it out
            raise UserError(
                f"track is {settings.track}, but {name} is not installed; expected installed packages. "
                f"Install it with: pip install {name}"
            )
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    # Processes without a GPU are connected only if accelerate is told to use the CPU.
    alone = launched > 1 and not (torch.cuda.is_available() or torch.xpu.is_available())
    log_with = list(settings.track) if folder and settings.track else None
    accelerator = Accelerator(cpu=settings.cpu or alone, log_with=log_with, project_dir=folder)
    if accelerator.num_processes != launched:
        raise UserError(
            f"{launched} processes were launched together, but {accelerator.num_processes} train "
            "together; expected all of them. Start the command without a launcher, or give --cpu."
        )
    return accelerator


def track(accelerator: Accelerator, settings: TrainingSettings, folder: Path, step: int) -> None:
    """Start the trackers; TensorBoard drops the steps after the given one, which are repeated."""
    options = {
        "tensorboard": {"purge_step": step + 1} if step else {},
        "wandb": {"name": folder.name, "dir": str(folder), "config": plain(asdict(settings))},
    }
    accelerator.init_trackers("tensorboard", init_kwargs=options)


def average(
    accelerator: Accelerator, numbers: Sequence[Tensor], parameters: Sequence[nn.Parameter]
) -> list[float]:
    """Average numbers and, in place, gradients over the processes, all in one message."""
    head = torch.stack([number.detach().to(torch.float64) for number in numbers])
    if accelerator.num_processes > 1:
        has = head.new_tensor([float(p.grad is not None) for p in parameters])
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        parts = [head, has, *(g.flatten() for g in gradients)]
        message = torch.cat([part.to(parameters[0].dtype) for part in parts])
        mean = accelerator.reduce(message, reduction="mean")
        head, has, *means = mean.split([part.numel() for part in parts])
        for p, gradient, share in zip(parameters, means, has.tolist(), strict=True):
            p.grad = gradient.view_as(p).to(p.dtype) if share > 0.0 else None
    return [float(number) for number in head.tolist()]


def share(tensors: Iterable[Tensor]) -> None:
    """Give all processes the values that the main one has."""
    from accelerate.utils import broadcast

    for tensor in tensors:
        tensor.data.copy_(broadcast(tensor.detach().clone()))


def from_main(accelerator: Accelerator, make: Callable[[], Made]) -> Made:
    """Make something on the main process, such as the folder of a run, and return it on all processes."""
    from accelerate.utils import broadcast_object_list

    made = [make() if accelerator.is_main_process else None]
    broadcast_object_list(made)
    return made[0]  # type: ignore[return-value]  # that of the main process


@contextmanager
def together() -> Iterator[None]:
    """Turn a failed message to another process into an error that says what to do."""
    try:
        yield
    except RuntimeError as error:
        frames = (frame for frame, _ in walk_tb(error.__traceback__))
        modules = [frame.f_globals.get("__name__", "") for frame in frames]
        if not any(name.startswith("torch.distributed.") for name in modules):
            raise
        raise UserError(
            f"another process of this run has ended or does not answer ({str(error).splitlines()[0]}); "
            "expected all of them to go on together. Look for the cause in its output, and resume the "
            "run from its last checkpoint."
        ) from error
