"""The execution of steps: each in a process of its own, on this machine or on a cluster.

A thread, or a worker of a cluster, starts the process of a step and waits for it. So a process that is
killed, such as for lack of memory, is the failure of its own step alone.
"""

from __future__ import annotations

import os
import pickle
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder, read_json
from reproduction.reproduce.steps import RESUMABLE, Step

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def workers(backend: str, jobs: int, address: str | None) -> Iterator[None]:
    """Start the workers that :func:`as_completed` uses within this context.

    Args:
        backend: "ray", "dask", or a backend of joblib.
        jobs: number of workers.
        address: address of a cluster; None starts one on this machine and shuts it down at the end.
    """
    from joblib import parallel_config

    with ExitStack() as stack:
        try:
            if backend == "ray":
                import ray
                from ray.util.joblib import register_ray

                cpus = jobs if address is None else None
                stack.enter_context(
                    ray.init(address, num_cpus=cpus, include_dashboard=False, log_to_driver=False)
                )
                register_ray()
            elif backend == "dask":
                from distributed import Client

                local: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
                client = Client(address) if address else Client(n_workers=jobs, **local)
                stack.enter_context(client)
        except ModuleNotFoundError as error:
            raise UserError(
                f"the backend {backend!r} needs the package {error.name!r}, which is not "
                "installed. Install it with: pip install 'swor[cluster]'"
            ) from error
        stack.enter_context(parallel_config(backend, n_jobs=jobs))
        yield


def as_completed(
    function: Callable[[Item], Result], items: Iterable[Item], backend: str
) -> Iterable[Result]:
    """Apply a function to items in parallel, and return each result as soon as it is available.

    With Ray, all results are returned together at the end, since joblib cannot stream them.
    """
    from joblib import Parallel, delayed

    tasks = (delayed(function)(item) for item in items)
    return_as = "list" if backend == "ray" else "generator_unordered"
    results: Iterable[Result] = Parallel(batch_size=1, return_as=return_as)(tasks)
    return results


@dataclass(frozen=True)
class Outcome:
    """The state of a step.

    Attributes:
        name: name of the step.
        seconds: wall-clock time of all attempts that have ended.
        machine: name of the machine that ran the last attempt.
        error: one line on what went wrong; None if the step succeeded.
    """

    name: str
    seconds: float = 0.0
    machine: str = ""
    error: str | None = None


RUNNING = "it has not ended"
"""The error of a step while it runs, and for good if its machine stops."""


def perform(step: Step, folder: Path) -> Outcome:
    """Run a step; write its output to ``logs/NAME.txt`` and its outcome to ``outcomes/NAME.json``.

    An error of the step is part of the outcome and is not raised, so that other steps continue.

    Args:
        step: the step to run.
        folder: folder of the reproduction, which all machines of a cluster must share.
    """
    before = outcome(folder, step.name) or Outcome(step.name)
    write(folder, Outcome(step.name, before.seconds, platform.node(), RUNNING))
    out = folder / step.name
    if out.exists() and not any((out / name).exists() for name in RESUMABLE):
        shutil.rmtree(out)  # left behind by an attempt that failed
    start = time.perf_counter()
    error = run_alone(step, out, folder / "logs" / f"{step.name}.txt")
    seconds = before.seconds + time.perf_counter() - start
    ended = Outcome(step.name, seconds, platform.node(), error)
    write(folder, ended)
    return ended


def run_alone(step: Step, out: Path, log: Path) -> str | None:
    """Run a step in a process of its own, and return its error in one line if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, sys.path))
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            [sys.executable, "-u", "-m", "reproduction.reproduce.alone"],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(pickle.dumps((step.run, out)))
        process.stdin.flush()  # it stays open, since its end would end the process
        code = process.wait()
    if code < 0:
        hint = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
        return f"its process was killed by {signal.Signals(-code).name}{hint}"
    return (last_line(log) or f"exit code {code}") if code else None


def last_line(log: Path) -> str:
    """Return the last line of the output of a step; an empty string if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def write(folder: Path, state: Outcome) -> None:
    """Write the outcome of a step."""
    RunFolder(folder / "outcomes").write_json(f"{state.name}.json", asdict(state))


def outcome(folder: Path, name: str) -> Outcome | None:
    """Read the outcome of a step; None if the step has never begun, or its file is damaged."""
    path = folder / "outcomes" / f"{name}.json"
    try:
        return Outcome(**read_json(path)) if path.exists() else None
    except (UserError, TypeError):
        return None


def is_done(folder: Path, name: str) -> bool:
    """Return whether a step has succeeded and its results are still there."""
    ended = outcome(folder, name)
    return ended is not None and ended.error is None and (folder / name).is_dir()
