"""The execution of steps: each is a command in a process of its own, on this machine or on a cluster.

A thread, or a worker of a cluster, starts the process of a step and waits for it. So a process that is
killed, such as for lack of memory, is the failure of its own step alone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder, read_json, writing
from reproduction.reproduce.steps import Step

if TYPE_CHECKING:
    from joblib import Parallel
    from rich.console import Console

PROGRAM = ("-m", "reproduction.alone")
RESUMABLE = ("checkpoint.pt", "variance.csv")
"""Files from which an interrupted step continues. A folder without any of them starts again."""
EVERY = 20.0  # seconds between two signs of life


@contextmanager
def workers(backend: str, jobs: int, address: str | None = None) -> Iterator[Parallel]:
    """Start workers, and yield joblib's ``Parallel``, which returns each result as soon as it is available.

    With Ray, it returns all results together at the end, since joblib cannot stream them.

    Args:
        backend: "ray", "dask", or a backend of joblib.
        jobs: number of workers.
        address: address of a cluster; None starts one on this machine and shuts it down at the end.
    """
    from joblib import Parallel, parallel_config

    with ExitStack() as stack:
        try:
            if backend == "ray":
                import ray
                from ray.util.joblib import register_ray

                cpus = jobs if address is None else None
                quiet = {"include_dashboard": False, "log_to_driver": False}
                stack.enter_context(ray.init(address, num_cpus=cpus, **quiet))
                register_ray()
            elif backend == "dask":
                from distributed import Client

                local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
                stack.enter_context(Client(address, **(local if address is None else {})))
        except ModuleNotFoundError as error:
            raise UserError(
                f"the backend {backend!r} needs the package {error.name!r}, which is not "
                f"installed. Install it with: pip install {error.name}"
            ) from error
        stack.enter_context(parallel_config(backend, n_jobs=jobs))
        return_as = "list" if backend == "ray" else "generator_unordered"
        yield Parallel(batch_size=1, return_as=return_as)


@dataclass(frozen=True)
class Outcome:
    """The end of a step: its name, its duration, and one line on its error if it failed."""

    name: str
    seconds: float = 0.0
    error: str | None = None


def perform(step: Step, folder: Path) -> Outcome:
    """Run a step; write its output to ``logs/NAME.txt`` and its outcome to ``outcomes/NAME.json``.

    An error of the step is part of the outcome and is not raised, so that other steps continue.

    Args:
        step: the step to run.
        folder: folder of the reproduction, which all machines of a cluster must share.
    """
    (folder / "outcomes" / f"{step.name}.json").unlink(missing_ok=True)
    out, start = folder / step.name, time.perf_counter()
    resumable = any((out / name).exists() for name in RESUMABLE)
    if out.exists() and not resumable:
        shutil.rmtree(out)  # left behind by an attempt that failed
    where = ("--resume" if resumable else "--out", str(out))
    error = run_alone([*step.arguments, *where], folder / "logs" / f"{step.name}.txt")
    ended = Outcome(step.name, time.perf_counter() - start, error)
    RunFolder(folder / "outcomes").write_json(f"{step.name}.json", asdict(ended))
    return ended


def run_alone(arguments: Sequence[str], log: Path) -> str | None:
    """Run a command in a process of its own, and return its error in one line if it fails."""
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, sys.path))
    with writing(log), log.open("a", encoding="utf-8") as file:
        print(f"$ python -m reproduction {shlex.join(arguments)}", file=file, flush=True)
        with subprocess.Popen(
            [sys.executable, "-u", *PROGRAM, *arguments],
            stdin=subprocess.PIPE,  # it stays open, since its end would end the process
            stdout=file,
            stderr=file,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        ) as process:
            code = process.wait()
    if code < 0:
        hint = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        return f"its process was killed by {signal.Signals(-code).name}{hint}"
    return last_line(log) if code else None


def last_line(log: Path) -> str:
    """Return the last line of the output of a step that is not empty."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def outcome(folder: Path, name: str) -> Outcome | None:
    """Read the outcome of a step; None if the step has not ended, or its file is damaged."""
    try:
        return Outcome(**read_json(folder / "outcomes" / f"{name}.json"))
    except (UserError, TypeError):
        return None


def is_done(folder: Path, name: str) -> bool:
    """Return whether a step has succeeded and its results are still there."""
    ended = outcome(folder, name)
    return ended is not None and ended.error is None and (folder / name).is_dir()


@contextmanager
def signs_of_life(folder: Path, console: Console) -> Iterator[None]:
    """Within this context, print regularly which steps run, and what they wrote last."""
    since, stop = time.time(), threading.Event()
    style: dict[str, Any] = {"style": "dim", "overflow": "ellipsis", "no_wrap": True}

    def tell() -> None:
        while not stop.wait(EVERY):
            for log in sorted((folder / "logs").glob("*.txt")):
                if log.stat().st_mtime >= since and outcome(folder, log.stem) is None:
                    line = f"{time.time() - since:>6.0f} s  {log.stem}: {last_line(log)}"
                    console.print(line, markup=False, **style)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
