"""The command ``lm``: train a small language model by a reward."""

from __future__ import annotations

from pathlib import Path

from reproduction.harness.training import run
from reproduction.lm.settings import LMSettings


def lm(settings: LMSettings) -> Path:
    """Train the language model, and return the folder of the run."""
    from reproduction.lm.task import SortingTask  # needs transformers, which the figures do not

    name = f"lm-{settings.estimator}"
    return run(lambda: SortingTask(settings), settings, command="lm", name=name)
