"""The command ``reproduce``: run the steps that remain, print the verdicts, and write the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console

from reproduction.claims.claim import evaluate
from reproduction.claims.listed import CLAIMS
from reproduction.claims.page import print_findings
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder, create, locked, read_json
from reproduction.reproduce.execution import Outcome, as_completed, is_done, perform, workers
from reproduction.reproduce.progress import duration, print_ended, signs_of_life
from reproduction.reproduce.settings import FULL, SHORT, Settings, Sizes
from reproduction.reproduce.steps import Step, all_steps, tables


def reproduce(settings: Settings) -> None:
    """Run the steps that remain, print the claims with their verdicts, and write ``report.html``."""
    run(settings, FULL if settings.full else SHORT)


def run(settings: Settings, sizes: Sizes) -> None:
    """Do the same as :func:`reproduce`, with any sizes."""
    from reproduction.reproduce.report.page import write_report

    console = Console(file=sys.stdout, highlight=False)
    steps = all_steps(sizes, settings.data_dir)
    remaining = [step for step in steps if not is_done(settings.folder, step.name)]
    announce(console, settings, steps, remaining)
    if settings.plan:
        return
    folder = reproduction_folder(settings.folder, sizes)
    with locked(folder.path):
        failed = run_steps(remaining, folder.path, settings, console)
        findings = evaluate(CLAIMS, tables(folder.path, sizes))
        report = write_report(folder, steps, sizes, findings)
    print_findings(findings, console)
    console.print(f"The report is {report}", soft_wrap=True)
    if failed:
        lines = [f"  {outcome.name}: {outcome.error}" for outcome in failed]
        raise UserError(
            f"{len(failed)} of {len(steps)} steps failed or were skipped:\n"
            + "\n".join(lines)
            + f"\nTheir output is in {folder.path / 'logs'}. Run the same command again to retry them."
        )


def announce(
    console: Console, settings: Settings, steps: Sequence[Step], remaining: Sequence[Step]
) -> None:
    """Print how many steps remain and how long they take; for long runs and plans, each step."""
    if settings.plan or settings.full:
        for step in steps:
            state = duration(step.seconds) if step in remaining else "done"
            console.print(f"  {step.name:<50} {state:>10}")
    console.print(f"{len(remaining)} of {len(steps)} steps remain.")
    if remaining:
        total = sum(step.seconds for step in remaining)
        parallel = max(max(step.seconds for step in remaining), total / settings.processes)
        console.print(
            f"They take about {duration(total)} on one core, or {duration(parallel)} with "
            f"{settings.processes} processes."
        )
    console.print(f"The folder of the results is {settings.folder}", soft_wrap=True)


def reproduction_folder(path: Path, sizes: Sizes) -> RunFolder:
    """Create the folder of a reproduction, or open it to continue one of the same sizes."""
    stored = path / "settings.json"
    if not stored.exists():
        folder = create(path)
        folder.write_settings(sizes)
        return folder
    expected = json.loads(json.dumps(asdict(sizes)))
    if read_json(stored).get("settings") != expected:
        raise UserError(
            f"{path} has the results of a reproduction of other sizes; expected a new folder, or "
            "one of the same sizes. Give another folder with --out."
        )
    return RunFolder(path)


def run_steps(
    steps: Sequence[Step], folder: Path, settings: Settings, console: Console
) -> list[Outcome]:
    """Run steps after those that they need, and return the outcomes of failed and skipped steps."""
    failed: list[Outcome] = []
    # A thread has nothing to do but to wait for the process of a step.
    backend = "threading" if settings.backend == "local" else settings.backend
    work = partial(perform, folder=folder)
    with (
        workers(backend, settings.processes, settings.address),
        signs_of_life(steps, folder, console),
    ):
        for wave in waves(steps):
            ready, skipped = split(wave, failed)
            failed += skipped
            for ended in as_completed(work, ready, backend):
                failed += [ended] if ended.error else []
                print_ended(ended, console)
    return failed


def waves(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Group steps into rounds: each round needs only earlier rounds, and starts with its longest step.

    >>> a, b = Step("a", print, 1.0), Step("b", print, 1.0, needs=("a", "done before"))
    >>> [[step.name for step in wave] for wave in waves([b, a])]
    [['a'], ['b']]
    """
    remaining = sorted(steps, key=lambda step: -step.seconds)
    while remaining:
        names = {step.name for step in remaining}
        wave = [step for step in remaining if not names & set(step.needs)]
        yield wave
        remaining = [step for step in remaining if step not in wave]


def split(wave: Sequence[Step], failed: Sequence[Outcome]) -> tuple[list[Step], list[Outcome]]:
    """Separate the steps that can run from those that need a failed step, as outcomes."""
    lost = {outcome.name for outcome in failed}
    ready, skipped = [], []
    for step in wave:
        missing = [name for name in step.needs if name in lost]
        if missing:
            skipped.append(Outcome(step.name, error=f"needs {', '.join(missing)}"))
        else:
            ready.append(step)
    return ready, skipped
