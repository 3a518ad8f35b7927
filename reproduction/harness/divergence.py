"""Training that diverges: it ends with an error that says so, before anything is overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from reproduction.harness.errors import UserError


def diverged(sign: str, step: int) -> UserError:
    """Return the error of a run that shows a sign of divergence after a number of steps."""
    return UserError(
        f"{sign} at step {step}; expected numbers. Training diverged: lower the learning rate or "
        "clip the gradient. The checkpoint is from before."
    )


def check_weights(model: nn.Module, step: int) -> None:
    """Refuse weights that are infinite or NaN."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise diverged(f"the weights {name} are not all finite", step)


@contextmanager
def watching(model: nn.Module, step: int, *, first: bool) -> Iterator[None]:
    """Report a ValueError as divergence, unless it is raised before this process has taken a step."""
    try:
        yield
    except ValueError as error:
        check_weights(model, step)
        if first:
            raise
        reason = str(error).splitlines()[0]
        raise diverged(f"the loss cannot be computed ({reason})", step) from error
