"""The command ``best-of-figures``: compare runs that train for the best of m or for the mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import tyro

from reproduction.best_of.figures import curves_figure, markdown_table, read_run, table
from reproduction.harness.errors import UserError
from reproduction.harness.folder import open_folder


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


def best_of_figures(settings: BestOfFigures) -> Path:
    """Write curves.csv, table.csv, table.md and curves.png, and return their folder.

    Args:
        settings: of the figures.
    """
    curves = pd.concat([read_run(path) for path in settings.runs], ignore_index=True)
    summary = table(curves)
    folder = open_folder(settings, "best-of-figures", out=settings.out)
    folder.write_csv("curves.csv", curves.to_dict("records"))
    folder.write_csv("table.csv", summary.to_dict("records"))
    folder.write_text("table.md", markdown_table(summary, curves))
    folder.write_figure("curves.png", curves_figure(curves))
    print(summary.to_string(index=False))
    print(f"The figures are in {folder.path}")
    return folder.path
