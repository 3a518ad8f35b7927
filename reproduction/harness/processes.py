r"""Communication between the processes of a run: $\frac1P \sum_r \nabla L_r$, weights and batch statistics.

This does what DistributedDataParallel does, but without hooks on the forward pass: an estimator may
call parts of the model several times and differentiate on its own. A parameter that only some
processes have a gradient of has gradient 0 on the others; one that no process has a gradient of stays
without one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from reproduction.harness.errors import UserError

if TYPE_CHECKING:
    from accelerate import Accelerator

Made = TypeVar("Made")


class Processes:
    """The processes of a run; each method is called by all of them.

    Args:
        accelerator: connects this process with the others.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.several = accelerator.num_processes > 1

    def average(self, numbers: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> list[float]:
        """Average numbers and, in place, gradients over the processes, all in one message."""
        head = torch.stack([number.to(torch.float64) for number in numbers])
        if not self.several:
            return _floats(head)
        dtype, some = parameters[0].dtype, [float(p.grad is not None) for p in parameters]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        parts = [head, head.new_tensor(some), *(g.flatten() for g in gradients)]
        message = torch.cat([part.to(dtype) for part in parts])
        mean = self.accelerator.reduce(message, reduction="mean")
        head, have, *reduced = mean.split([part.numel() for part in parts])
        for p, part, share in zip(parameters, reduced, _floats(have), strict=True):
            p.grad = part.view_as(p).to(p.dtype) if share > 0.0 else None
        return _floats(head)

    def share(self, tensors: Iterator[Tensor]) -> None:
        """Give all processes the values that the main one has."""
        from accelerate.utils import broadcast

        if self.several:
            for tensor in tensors:
                tensor.data.copy_(broadcast(tensor.detach().clone()))

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.accelerator.wait_for_everyone()


def connect(*, cpu: bool) -> Accelerator:
    """Connect this process with those that were launched together with it, whatever the device.

    Args:
        cpu: as in the settings.
    """
    from accelerate import Accelerator

    accelerator, launched = Accelerator(cpu=on_cpu(cpu=cpu)), launched_together()
    if accelerator.num_processes != launched:
        raise UserError(
            f"{launched} processes were launched together, but {accelerator.num_processes} train "
            "together; expected all of them. Start the command without a launcher, or give --cpu."
        )
    return accelerator


def on_cpu(*, cpu: bool) -> bool:
    """Whether to use the CPU: if the settings say so, or if processes cannot be connected otherwise.

    Without a device whose processes can be connected, accelerate connects them only if it is told to
    use the CPU. Otherwise each of them would train alone.
    """
    from accelerate.utils import is_npu_available

    connected = torch.cuda.is_available() or torch.xpu.is_available() or is_npu_available()
    return cpu or (launched_together() > 1 and not connected)


def launched_together() -> int:
    """The number of processes that torchrun or accelerate launched."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main(*, cpu: bool) -> bool:
    """Return whether this is the main process, or the only one."""
    from accelerate import PartialState

    return bool(PartialState(cpu=on_cpu(cpu=cpu)).is_main_process)


def on_main(make: Callable[[], Path], *, cpu: bool) -> Path:
    """Make something on the main process, such as the folder of a run, and return it on all processes.

    Args:
        make: called on the main process only; if it fails, all processes do.
        cpu: as in the settings.
    """
    from accelerate.utils import broadcast_object_list

    made: list[Path | str] = [""]
    if is_main(cpu=cpu):
        try:
            made = [make()]
        except (UserError, OSError) as error:
            made = [str(error)]
    broadcast_object_list(made)
    if isinstance(made[0], str):
        raise UserError(made[0])
    return made[0]


def main_first(make: Callable[[], Made], *, cpu: bool) -> Made:
    """Make something on every process, on the main one before the others, such as a download.

    Args:
        make: called on every process; if it fails on the main one, all processes do.
        cpu: as in the settings.
    """
    made: list[Made] = []

    def first() -> Path:
        made.append(make())
        return Path()

    on_main(first, cpu=cpu)
    return made[0] if made else make()


@contextmanager
def together(processes: int) -> Iterator[None]:
    """Turn a failed message to another process into an error that says what to do.

    Args:
        processes: their number.
    """
    try:
        yield
    except RuntimeError as error:
        if not _from_a_message(error):
            raise
        cause = str(error).splitlines()[0]
        raise UserError(
            f"another of the {processes} processes of this run has ended or does not answer "
            f"({cause}); expected all of them to go on together. Look for the cause in its output, "
            "and resume the run from its last checkpoint."
        ) from error


def _from_a_message(error: RuntimeError) -> bool:
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return any(f.f_globals.get("__name__", "").startswith("torch.distributed.") for f in frames)


def _floats(x: Tensor) -> list[float]:
    return [float(number) for number in x.tolist()]
