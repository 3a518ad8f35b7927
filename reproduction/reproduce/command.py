"""The command ``reproduce``: run the steps that remain, print the verdicts, and write the report."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from reproduction.claims.claim import evaluate
from reproduction.claims.listed import CLAIMS
from reproduction.claims.page import print_findings
from reproduction.harness.errors import UserError, check_at_least
from reproduction.harness.folder import RunFolder, locked, open_folder, plain
from reproduction.harness.metrics import duration
from reproduction.harness.settings import stored_settings
from reproduction.reproduce.execution import (
    Outcome,
    is_done,
    outcome,
    perform,
    signs_of_life,
    workers,
)
from reproduction.reproduce.steps import FULL, SHORT, Sizes, Step, all_steps, tables


@dataclass(frozen=True)
class Settings:
    """Reproduce the paper: Figure 1, the VAE, the travelling salesman, verdicts on claims, and a report.

    Without options this takes a few minutes and needs no network. Steps that have succeeded are not
    run again, so the same command continues a run that was interrupted.
    """

    full: bool = False
    """run the paper's sizes, which takes weeks of computation; see --plan"""
    plan: bool = False
    """list the steps and their estimated durations, and run nothing"""
    jobs: int | None = None
    """number of processes, each with one thread; by default one per core"""
    backend: Literal["local", "ray", "dask"] = "local"
    """where the processes run: on this machine (local), or on a Ray or Dask cluster"""
    address: str | None = None
    """address of the Ray or Dask cluster; by default a new cluster is started on this machine"""
    data_dir: Path | None = None
    """folder of the MNIST files, for --full; by default SWOR_DATA, or else a download"""
    out: Path | None = None
    """folder of the results; by default runs/reproduce, or runs/reproduce-full with --full"""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "jobs")
        if self.address is not None and self.backend == "local":
            raise UserError(
                f"address is {self.address}, but the backend is local, which uses this machine only; "
                "expected no address. Give --backend ray or --backend dask, or leave out --address."
            )

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.out or Path("runs") / ("reproduce-full" if self.full else "reproduce")

    @property
    def processes(self) -> int:
        """The number of processes."""
        from joblib import cpu_count

        return self.jobs or int(cpu_count())


def reproduce(settings: Settings) -> None:
    """Run the steps that remain, print the claims with their verdicts, and write ``report.html``."""
    run(settings, FULL if settings.full else SHORT)


def run(settings: Settings, sizes: Sizes) -> None:
    """Do the same as :func:`reproduce`, with any sizes."""
    from reproduction.reproduce.report import write_report

    console = Console(file=sys.stdout, highlight=False)
    steps = all_steps(sizes, settings.folder, settings.data_dir)
    remaining = [step for step in steps if not is_done(settings.folder, step.name)]
    announce(console, settings, steps, remaining)
    if settings.plan:
        return
    folder = reproduction_folder(settings.folder, sizes)
    with locked(folder.path):
        failed = run_steps(remaining, settings, console)
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
    total = sum(step.seconds for step in remaining)
    longest = max((step.seconds for step in remaining), default=0.0)
    parallel = duration(max(longest, total / settings.processes))
    console.print(
        f"{len(remaining)} of {len(steps)} steps remain: about {duration(total)} on one core, or "
        f"{parallel} with {settings.processes} processes."
    )
    console.print(f"The folder of the results is {settings.folder}", soft_wrap=True)


def reproduction_folder(path: Path, sizes: Sizes) -> RunFolder:
    """Create the folder of a reproduction, or open it to continue one of the same sizes."""
    if not (path / "settings.json").exists():
        return open_folder(sizes, "reproduce", out=path)
    if stored_settings(path) != plain(asdict(sizes)):
        raise UserError(
            f"{path} has the results of a reproduction of other sizes; expected a new folder, or "
            "one of the same sizes. Give another folder with --out."
        )
    return RunFolder(path)


def run_steps(steps: Sequence[Step], settings: Settings, console: Console) -> list[Outcome]:
    """Run steps after those that they need, and return the outcomes of failed and skipped steps."""
    from joblib import delayed

    # A thread has nothing to do but to wait for the process of a step.
    backend = "threading" if settings.backend == "local" else settings.backend
    failed: dict[str, Outcome] = {}
    with (
        workers(backend, settings.processes, settings.address) as parallel,
        signs_of_life(settings.folder, console),
    ):
        for wave in waves(steps):
            for step in wave:
                if lost := [name for name in step.needs if name in failed]:
                    failed[step.name] = Outcome(step.name, error=f"needs {', '.join(lost)}")
            ready = [step for step in wave if step.name not in failed]
            jobs = (delayed(perform)(step, settings.folder) for step in ready)
            for ended in outcomes(parallel(jobs), ready, settings.folder):
                failed |= {ended.name: ended} if ended.error else {}
                result = f"FAILED, {ended.error}" if ended.error else "done"
                console.print(f"{duration(ended.seconds):>8}  {ended.name}: {result}", markup=False)
    return list(failed.values())


def outcomes(results: Iterable[Outcome], steps: Sequence[Step], folder: Path) -> Iterator[Outcome]:
    """Yield the outcomes of steps; if a worker of a cluster is lost, its steps have failed."""
    seen = set()
    try:
        for ended in results:
            seen.add(ended.name)
            yield ended
    except Exception as error:  # that of a cluster, since a step raises none
        for name in [step.name for step in steps if step.name not in seen]:
            lost = f"its worker was lost ({type(error).__name__}: {error})".split("\n")[0]
            yield outcome(folder, name) or Outcome(name, error=lost)


def waves(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Group steps into rounds: each round needs only earlier rounds, and starts with its longest step.

    >>> a, b = Step("a", (), 1.0), Step("b", (), 1.0, needs=("a", "done before"))
    >>> [[step.name for step in wave] for wave in waves([b, a])]
    [['a'], ['b']]
    """
    remaining = sorted(steps, key=lambda step: -step.seconds)
    while remaining:
        names = {step.name for step in remaining}
        wave = [step for step in remaining if not names & set(step.needs)]
        yield wave
        remaining = [step for step in remaining if step not in wave]
