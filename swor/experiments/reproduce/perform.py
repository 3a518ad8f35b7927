"""One step, in whatever process: done once, its log kept, a failure noted and not raised."""

from __future__ import annotations

import json
import platform
import shutil
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from swor.experiments.runs.folder import RunFolder
from swor.experiments.reproduce.actions import RESUMABLE
from swor.experiments.reproduce.steps import Step


@dataclass(frozen=True)
class Outcome:
    """How a step ended.

    Attributes:
        name: of the step.
        seconds: it took by the clock, all attempts together.
        cpu_seconds: it took of the processor.
        machine: it ran on.
        error: what went wrong, in a line; None if nothing did.
    """

    name: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    machine: str = ""
    error: str | None = None


def perform(step: Step, folder: Path) -> Outcome:
    """Do a step, with one thread; its output goes to ``logs/NAME.txt``.

    Args:
        step: what to do.
        folder: of the reproduction, which every machine of a cluster must see.
    """
    torch.set_num_threads(1)
    before = outcome(folder, step.name) or Outcome(step.name)
    out = folder / step.name
    if out.exists() and not any((out / name).exists() for name in RESUMABLE):
        shutil.rmtree(out)  # the remains of an attempt that failed
    began, cpu_began = time.perf_counter(), time.process_time()
    error = _attempt(step, out, folder / "logs" / f"{step.name}.txt")
    ended = Outcome(
        step.name,
        before.seconds + time.perf_counter() - began,
        before.cpu_seconds + time.process_time() - cpu_began,
        platform.node(),
        error,
    )
    RunFolder(folder / "outcomes").write_json(f"{step.name}.json", asdict(ended))
    return ended


def _attempt(step: Step, out: Path, log: Path) -> str | None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            step.run(out)
        except Exception as error:  # whatever it is, the other steps go on
            traceback.print_exc()
            return f"{type(error).__name__}: {error}"
    return None


def outcome(folder: Path, name: str) -> Outcome | None:
    """How a step ended the last time; None if it never did."""
    path = folder / "outcomes" / f"{name}.json"
    return Outcome(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def is_done(folder: Path, name: str) -> bool:
    """Whether a step has been done."""
    ended = outcome(folder, name)
    return ended is not None and ended.error is None
