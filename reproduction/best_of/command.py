"""The command ``best-of-figures``: compare what runs reach that train for the best of m or for the mean."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from reproduction.best_of.figures import figure, markdown_table, read_run, table
from reproduction.best_of.settings import BestOfFigures
from reproduction.harness.folder import open_folder


def best_of_figures(settings: BestOfFigures) -> Path:
    """Write curves.csv, table.csv, table.md and curves.png, and return their folder.

    Args:
        settings: what to compare.
    """
    curves = pd.concat([read_run(path) for path in settings.runs], ignore_index=True)
    summary = table(curves)
    folder = open_folder(settings, "best-of-figures", out=settings.out)
    folder.write_csv("curves.csv", curves.to_dict("records"))
    folder.write_csv("table.csv", summary.to_dict("records"))
    folder.write_text("table.md", markdown_table(summary, curves))
    folder.write_figure("curves.png", figure(curves))
    print(summary.to_string(index=False))
    print(f"The figures are in {folder.path}")
    return folder.path
