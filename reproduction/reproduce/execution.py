"""How steps are executed: processes on this machine or a cluster, and the outcome of each step."""

from __future__ import annotations

import os
import platform
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch

from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder, read_json
from reproduction.reproduce.settings import Backend
from reproduction.reproduce.steps import RESUMABLE, Step

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_EVERY = 0.3  # seconds between two looks at the process that started this one


@contextmanager
def processes(backend: Backend, jobs: int, address: str | None) -> Iterator[None]:
    """Start the processes that :func:`as_completed` uses within this context.

    Args:
        backend: "loky", "ray" or "dask".
        jobs: number of processes.
        address: address of a cluster; None starts one on this machine and shuts it down at the end.
    """
    from joblib import parallel_config

    with ExitStack() as stack:
        try:
            if backend == "ray":
                stack.enter_context(_ray(jobs, address))
            elif backend == "dask":
                stack.enter_context(_dask(jobs, address))
        except ModuleNotFoundError as error:
            raise UserError(
                f"the backend {backend!r} needs the package {error.name!r}, which is not "
                f"installed. Install it with: pip install {error.name}"
            ) from error
        stack.enter_context(parallel_config(backend, n_jobs=jobs))
        yield


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[None]:
    import ray
    from ray.util.joblib import register_ray

    if address is None:
        ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=address, log_to_driver=False)
    try:
        register_ray()
        yield
    finally:
        ray.shutdown()


@contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[None]:
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        if address is None:
            # Each worker has one thread, because a step redirects the output of its whole process.
            cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(cluster).scheduler_address
        stack.enter_context(Client(address))
        yield


def as_completed(
    function: Callable[[Item], Result], items: Iterable[Item], backend: Backend
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
    """How a step ended.

    Attributes:
        name: name of the step.
        seconds: wall-clock time of all attempts together.
        cpu_seconds: processor time of all attempts together.
        machine: name of the machine that ran the last attempt.
        error: one line on what went wrong; None if the step succeeded.
    """

    name: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    machine: str = ""
    error: str | None = None


def end_with(parent: int) -> None:
    """End this process, at once, as soon as the process that started it has ended.

    A command that is killed has no chance to end its processes, which would then write to the folder
    beside those of the next command.

    Args:
        parent: number of the process that started this one.
    """

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        os._exit(1)

    name = f"end with {parent}"
    if os.getpid() != parent and name not in {thread.name for thread in threading.enumerate()}:
        threading.Thread(target=look, name=name, daemon=True).start()


def perform(step: Step, folder: Path, parent: int | None = None) -> Outcome:
    """Run a step with one thread; write its output to ``logs/NAME.txt`` and its outcome as JSON.

    An error of the step is part of the outcome and is not raised, so that other steps continue.

    Args:
        step: the step to run.
        folder: folder of the reproduction, which all machines of a cluster must share.
        parent: number of the process with which this one ends; None if a cluster ends its processes.
    """
    if parent is not None:
        end_with(parent)
    torch.set_num_threads(1)
    previous = outcome(folder, step.name) or Outcome(step.name)
    out = folder / step.name
    if out.exists() and not any((out / name).exists() for name in RESUMABLE):
        shutil.rmtree(out)  # left behind by an attempt that failed
    start, cpu_start = time.perf_counter(), time.process_time()
    error = _attempt(step, out, folder / "logs" / f"{step.name}.txt")
    ended = Outcome(
        step.name,
        previous.seconds + time.perf_counter() - start,
        previous.cpu_seconds + time.process_time() - cpu_start,
        platform.node(),
        error,
    )
    RunFolder(folder / "outcomes").write_json(f"{step.name}.json", asdict(ended))
    return ended


def _attempt(step: Step, out: Path, log: Path) -> str | None:
    """Run a step, and return its error in one line if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            step.run(out)
        except Exception as error:  # any failure of this step must leave the others running
            traceback.print_exc()
            return f"{type(error).__name__}: {error}"
    return None


def outcome(folder: Path, name: str) -> Outcome | None:
    """Read the outcome of a step; None if the step has never ended, or its file is damaged."""
    path = folder / "outcomes" / f"{name}.json"
    try:
        return Outcome(**read_json(path)) if path.exists() else None
    except (UserError, TypeError):
        return None


def is_done(folder: Path, name: str) -> bool:
    """Return whether a step has succeeded and its results are still there."""
    ended = outcome(folder, name)
    return ended is not None and ended.error is None and (folder / name).is_dir()
