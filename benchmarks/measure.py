"""Side-by-side measurement: figures are ratios of medians over interleaved repeats of one run."""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

OUTPUT = Path(os.environ.get("SWOR_BENCHMARKS", "runs/benchmarks"))


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median and the spread between the quartiles."""

    median: float
    spread: float


def timings(
    functions: dict[str, Callable[[], object]], *, repeats: int = 30, seconds: float = 20.0
) -> dict[str, Timing]:
    """Time functions in turn, round after round, so that noise of the machine hits all alike."""
    for function in functions.values():
        function()
        function()
    taken: dict[str, list[float]] = {name: [] for name in functions}
    begin = time.perf_counter()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.process_time()  # with one thread, what an idle machine would take
            function()
            taken[name].append(time.process_time() - start)
        if time.perf_counter() - begin > seconds:
            break
    return {name: _summary(values) for name, values in taken.items()}


def _summary(values: list[float]) -> Timing:
    if len(values) < 2:
        return Timing(values[0], 0.0)
    quartiles = statistics.quantiles(values, n=4)
    return Timing(statistics.median(values), quartiles[2] - quartiles[0])


def added_memory(function: Callable) -> float:
    """MB by which a call in a process of its own raises the peak."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "peak"
        child = os.fork()
        if child == 0:
            before = resident()
            function()
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            answer.write_text(str(after - before))
            os._exit(0)
        os.waitpid(child, 0)
        return float(answer.read_text())


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def report(title: str, rows: Sequence[dict[str, object]], name: str) -> None:
    """Print a table, and write it as CSV, with its title and the machine beside it as JSON."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = Table(title=f"{title}\n{machine()}")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(_text(row.get(column, "")) for column in columns))
    Console(width=140).print(table)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with open(OUTPUT / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    about = json.dumps({"title": title, "machine": machine()}, indent=2)
    (OUTPUT / f"{name}.json").write_text(about + "\n")


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"torch {torch.__version__}, {torch.get_num_threads()} thread(s), "
        f"{os.cpu_count()} cores, {processor()}, load {os.getloadavg()[0]:.1f}"
    )


def processor() -> str:
    """The name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
