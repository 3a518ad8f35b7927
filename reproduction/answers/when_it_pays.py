"""The table of the page "When does it pay?" on a policy in training."""

from __future__ import annotations

from pathlib import Path

from reproduction.harness.tables import committed_table, markdown

FIRST = 100  # steps, before which no tours repeat


def training(folder: Path) -> str:
    """Return the variance of RLOO ÷ that of the unordered set estimator against the training steps."""
    tours = folder.parent / "tsp" / "variance"
    rows = committed_table(tours / "variance.csv")
    rows = rows[(rows["estimator"] == "unordered_set") & (rows["step"] >= FIRST)]
    repeated = committed_table(tours / "policies.csv").set_index("step")["duplicates"]
    lines = []
    for step, gain, error in rows.sort_values("step")[["step", "gain", "gain_error"]].itertuples(
        index=False
    ):
        number = f"{step:,.0f}".replace(",", " ")
        lines.append([number, f"{100 * repeated[step]:.1f} %", f"{gain:.2f} ± {error:.2f}"])
    return markdown(["training steps", "duplicates", "variance of RLOO ÷ ours"], lines)
