"""Processes through joblib: on this machine, or on a Ray or Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from swor.experiments.runs.errors import UserError
from swor.experiments.reproduce.settings import Backend

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def processes(backend: Backend, jobs: int, address: str | None) -> Iterator[None]:
    """Within it, :func:`as_completed` uses a backend.

    Args:
        backend: "loky", "ray" or "dask".
        jobs: the number of processes.
        address: of the cluster; None for a new one on this machine, which is shut down at the end.
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
                "installed. Install it with: pip install 'swor[cluster]'"
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
            # One thread each: the output of a step is redirected for its whole process.
            cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            address = stack.enter_context(cluster).scheduler_address
        stack.enter_context(Client(address))
        yield


def as_completed(
    function: Callable[[Item], Result], items: Iterable[Item], backend: Backend
) -> Iterable[Result]:
    """The results, each as soon as it is there; with Ray, which joblib cannot ask, all at the end."""
    from joblib import Parallel, delayed

    tasks = (delayed(function)(item) for item in items)
    return_as = "list" if backend == "ray" else "generator_unordered"
    results: Iterable[Result] = Parallel(batch_size=1, return_as=return_as)(tasks)
    return results
