"""``swor lm``: train a small language model by the reward of its completions."""

from __future__ import annotations

from pathlib import Path

from swor.experiments.lm.settings import LanguageModel
from swor.experiments.lm.task import SortingTask
from swor.experiments.run import run


def lm(settings: LanguageModel) -> Path:
    """Train, and return the folder of the run.

    Args:
        settings: of the run; with ``resume``, those of the run with what may change.
    """
    settings.check()
    name = f"lm-{settings.estimator}"
    return run(
        SortingTask(settings),
        settings,
        command="lm",
        name=name,
        resume=settings.resume,
        out=settings.out,
    )
