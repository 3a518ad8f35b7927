"""The table of the page "When does it pay?" on a policy in training."""

from __future__ import annotations

from pathlib import Path

from reproduction.answers import tsp
from reproduction.harness.statistics import with_error
from reproduction.harness.tables import markdown

FIRST = 100  # steps, before which no tours repeat


def training(folder: Path) -> str:
    """Return the variance of RLOO ÷ that of the unordered set estimator against the training steps.

    The last row is the policy that the authors trained, if it was measured.
    """
    tours = folder.parent / "tsp"
    rows, policies = tsp.measured(tours)
    rows = rows[(rows["estimator"] == "unordered_set") & (rows["step"] >= FIRST)]
    repeated = policies.set_index("step")["duplicates"]
    lines = []
    for row in rows.sort_values("step").itertuples():
        number = f"{row.step:,.0f}".replace(",", " ")
        whose = f", {tsp.RELEASED}" if tsp.title(tours, row.step) == tsp.RELEASED else ""
        gain = with_error(row.gain, row.gain_error)
        lines.append([f"{number}{whose}", f"{100 * repeated[row.step]:.1f} %", gain])
    return markdown(["training steps", "duplicates", "variance of RLOO ÷ ours"], lines)
