"""Settings of the command ``best-of-figures``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from reproduction.harness.errors import UserError


@dataclass(frozen=True, kw_only=True)
class BestOfFigures:
    """Compare runs that train for the best of m with runs that train for the mean.

    Every run must have been validated with the best of the same m: runs of the command tsp or lm with
    --best-of m or with --validate-best-of m.

    Attributes:
        runs: folders of runs of python -m reproduction tsp, or of python -m reproduction lm.
        out: folder to write to; by default a new one in runs/.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError(
                "no runs were given; expected folders of runs of the command tsp or lm."
            )
