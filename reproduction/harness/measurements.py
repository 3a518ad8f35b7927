"""Measurements of gradients: long tables that are written a row at a time, and can be continued."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from reproduction.harness.folder import RunFolder, create, locked, require_new
from reproduction.harness.settings import ResumableSettings, read_settings, require_same
from swor.diagnostics._bias import Blocks
from swor.diagnostics._bias import squared_norm as squared_norm
from swor.diagnostics._streaming import Stream, start, update

Advance = Callable[[], None]


class Job(NamedTuple):
    """A part of a measurement.

    Attributes:
        name: what the progress bar shows.
        draws: the number of gradients that it draws.
        work: does it, and calls its argument after every draw.
    """

    name: str
    draws: int
    work: Callable[[Advance], None]


def do(jobs: Sequence[Job]) -> None:
    """Do the jobs one after the other, with a progress bar over all draws."""
    from rich.progress import Progress

    with Progress() as progress:
        bar = progress.add_task("", total=sum(job.draws for job in jobs))
        for job in jobs:
            progress.update(bar, description=job.name)
            if not progress.console.is_terminal:  # the bar is drawn at the end only
                progress.console.print(f"{job.name}: {progress.tasks[0].percentage:.0f} % are done")
            job.work(lambda: progress.advance(bar))


@contextmanager
def measuring(settings: ResumableSettings, command: str, name: str) -> Iterator[RunFolder]:
    """Open and lock the folder of a measurement, and say how to continue it if it is interrupted."""
    folder = RunFolder(settings.resume) if settings.resume else create(settings.out, name)
    try:
        with locked(folder.path):
            if settings.resume is None:
                require_new(folder.path)
            else:
                before = read_settings(type(settings), folder.path)
                require_same(before, settings, folder.path / "settings.json")
            folder.write_settings(settings)
            yield folder
    except KeyboardInterrupt:
        print(f"Stopped. Continue with: python -m reproduction {command} --resume {folder.path}")
        raise


def moments(
    draw: Callable[[int], Tensor], draws: int, groups: tuple[int, ...], advance: Advance
) -> Stream:
    """Return the moments of gradients, (parameters,), by the numbers of parameters of their groups."""
    stream = start(sum(groups), groups=groups)
    for number in range(draws):
        stream = update(stream, draw(number).unsqueeze(0))
        advance()
    return stream


def moments_and_means(
    draw: Callable[[int], Tensor], draws: int, parameters: int, blocks: int, advance: Advance
) -> tuple[Stream, Tensor]:
    """Return the moments of gradients, and the means of blocks of consecutive ones, (blocks, parameters)."""
    added = Blocks(draws, parameters, torch.device("cpu"), blocks)

    def draw_and_add(number: int) -> Tensor:
        gradient = draw(number)
        added.add(gradient.unsqueeze(0))
        return gradient

    return moments(draw_and_add, draws, (parameters,), advance), added.means()


def flat_gradient(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the gradient of a scalar with respect to all parameters, (parameters,)."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
