r"""What the processes of a run tell each other: $\frac1P \sum_r \nabla L_r$, weights and batch statistics.

This does what DistributedDataParallel would, without its hooks on the forward pass: an estimator may
call parts of the model several times, and differentiate on its own. There is no need to say whether
parameters are unused: one that some processes have no gradient of has 0 there, and one that none has a
gradient of is left without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from swor.experiments.errors import UserError

if TYPE_CHECKING:
    from accelerate import Accelerator


class Processes:
    """The processes of a run; each method is called by all of them.

    Args:
        accelerator: knows the others.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.several = accelerator.num_processes > 1

    def average(self, numbers: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> list[float]:
        """Means of numbers and of gradients over the processes, the latter in place; in one message."""
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
        """Until all processes are here."""
        self.accelerator.wait_for_everyone()


@contextmanager
def together(processes: int) -> Iterator[None]:
    """Within it, a message to the other processes that fails is an error that says what to do.

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
