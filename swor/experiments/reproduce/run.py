"""``swor reproduce``: do what is not done yet, go on when a step fails, and write the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from swor.experiments.runs.errors import UserError
from swor.experiments.runs.folder import RunFolder, create
from swor.experiments.reproduce.parallel import as_completed, processes
from swor.experiments.reproduce.perform import Outcome, is_done, perform
from swor.experiments.reproduce.settings import Settings
from swor.experiments.reproduce.sizes import FULL, SHORT, Sizes
from swor.experiments.reproduce.steps import Step, all_steps

if TYPE_CHECKING:
    from rich.console import Console


def reproduce(settings: Settings) -> None:
    """Run the steps that are left, and write ``report.html``."""
    run(settings, FULL if settings.full else SHORT)


def run(settings: Settings, sizes: Sizes) -> None:
    """As :func:`reproduce`, of any size."""
    from rich.console import Console

    from swor.experiments.reproduce.report.page import write_report

    console = Console(file=sys.stdout, highlight=False)  # not that to which a step is redirected
    steps = all_steps(sizes, settings.data_dir)
    left = [step for step in steps if not is_done(settings.folder, step.name)]
    announce(console, settings, steps, left)
    if settings.plan:
        return
    folder = same_folder(settings.folder, sizes)
    failed = run_steps(left, folder.path, settings, console)
    report = write_report(folder, steps, sizes)
    console.print(f"The report is {report}", soft_wrap=True)
    if failed:
        lines = [f"  {outcome.name}: {outcome.error}" for outcome in failed]
        raise UserError(
            f"{len(failed)} of {len(steps)} steps were not done:\n" + "\n".join(lines) + "\n"
            f"Their output is in {folder.path / 'logs'}. Give the command again to repeat them."
        )


def announce(
    console: Console, settings: Settings, steps: Sequence[Step], left: Sequence[Step]
) -> None:
    """Say what will be run, and what it takes."""
    if settings.plan or settings.full:
        for step in steps:
            state = duration(step.seconds) if step in left else "done"
            console.print(f"  {step.name:<50} {state:>10}")
    seconds = sum(step.seconds for step in left)
    longest = max((step.seconds for step in left), default=0.0)
    wall = max(longest, seconds / settings.processes)
    console.print(
        f"{len(left)} of {len(steps)} steps are left, about {duration(seconds)} of one core: "
        f"{duration(wall)} with {settings.processes} processes. Results: {settings.folder}",
        soft_wrap=True,
    )


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(40), duration(600), duration(36_000), duration(2_000_000)
    ('40 s', '10 min', '10 h', '23 days')
    """
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def same_folder(path: Path, sizes: Sizes) -> RunFolder:
    """A new folder, or that of the same reproduction."""
    wanted = json.loads(json.dumps(asdict(sizes)))
    stored = path / "settings.json"
    if not stored.exists():
        folder = create(path)
        folder.write_settings(sizes)
        return folder
    if json.loads(stored.read_text(encoding="utf-8"))["settings"] != wanted:
        raise UserError(
            f"{path} has results of other sizes; expected a new folder, or one of the same "
            "reproduction. Give another with --out."
        )
    return RunFolder(path)


def run_steps(
    steps: Sequence[Step], folder: Path, settings: Settings, console: Console
) -> list[Outcome]:
    """Run steps, those first that others need; return those that were not done."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.completed}/{task.total} steps"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    failed: list[Outcome] = []
    work = partial(perform, folder=folder)
    with processes(settings.backend, settings.processes, settings.address), bar:
        task = bar.add_task("", total=len(steps))
        for wave in waves(steps):
            ready, stuck = _ready(wave, failed)
            failed += stuck
            bar.update(task, advance=len(stuck), description=f"{len(ready)} in this round")
            for ended in as_completed(work, ready, settings.backend):
                failed += [ended] if ended.error else []
                mark = f"FAILED, {ended.error}" if ended.error else "done"
                bar.console.print(
                    f"{duration(ended.seconds):>8}  {ended.name}: {mark}", markup=False
                )
                bar.update(task, advance=1)
    return failed


def waves(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps that need nothing that is left, the longest first; then those that need these.

    >>> a, b = Step("a", print, 1.0), Step("b", print, 1.0, needs=("a", "done before"))
    >>> [[step.name for step in wave] for wave in waves([b, a])]
    [['a'], ['b']]
    """
    left = sorted(steps, key=lambda step: -step.seconds)
    while left:
        names = {step.name for step in left}
        wave = [step for step in left if not names & set(step.needs)]
        yield wave
        left = [step for step in left if step not in wave]


def _ready(wave: Sequence[Step], failed: Sequence[Outcome]) -> tuple[list[Step], list[Outcome]]:
    """The steps that have what they need, and the others as outcomes."""
    lost = {outcome.name for outcome in failed}
    ready, stuck = [], []
    for step in wave:
        missing = [name for name in step.needs if name in lost]
        if missing:
            stuck.append(Outcome(step.name, error=f"needs {', '.join(missing)}"))
        else:
            ready.append(step)
    return ready, stuck
