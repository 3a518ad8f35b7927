"""The table of the page "When does it pay?" on a policy in training."""

from __future__ import annotations

from pathlib import Path

from reproduction.harness.tables import committed_table, markdown

FIRST = 100  # steps, before which no tours repeat


def training(folder: Path) -> str:
    r"""Return the variance of RLOO ÷ that of the unordered set estimator against the training steps.

    The standard error of $1 / r$ is that of $r$ over $r^2$.
    """
    tours = folder.parent / "tsp" / "variance"
    rows = committed_table(tours / "variance.csv")
    rows = rows[(rows["estimator"] == "unordered_set") & (rows["step"] >= FIRST)].sort_values(
        "step"
    )
    repeated = committed_table(tours / "policies.csv").set_index("step")["duplicates"]
    lines = []
    for step, ratio, error in rows[
        ["step", "relative_variance", "relative_variance_error"]
    ].itertuples(index=False):
        number = f"{step:,.0f}".replace(",", " ")
        lines.append(
            [number, f"{100 * repeated[step]:.1f} %", f"{1 / ratio:.2f} ± {error / ratio**2:.2f}"]
        )
    return markdown(["training steps", "duplicates", "variance of RLOO ÷ ours"], lines)
