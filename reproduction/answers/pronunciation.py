"""The numbers of the pages on pronunciation."""

from __future__ import annotations

from pathlib import Path

from reproduction.harness.statistics import over_seeds, with_error
from reproduction.harness.tables import committed_table
from reproduction.pronunciation.tables import COMPARED, at_the_end, gains

OURS = "unordered_set mean"
K = 4  # samples of a word in training


def answer(folder: Path) -> str:
    """Return what independent samples waste, and how training compares."""
    groups = committed_table(folder / "groups.csv").set_index("k").loc[K]
    gain = gains(committed_table(folder / "variance.csv")).loc[K]
    steps, end = at_the_end(committed_table(folder / "training" / "curves.csv"))
    apart = 100 * (end.loc[OURS] - end.loc[COMPARED])["sampled"].dropna()
    means = {name: 100 * end.loc[name, "sampled"].mean() for name in (OURS, COMPARED)}
    return (
        f"Of {K} independent pronunciations of a word, {groups['duplicates']:.0f} % repeat another one, and "
        f"the gradient of RLOO, which draws them, has {with_error(*gain[['gain', 'gain_error']])} times the "
        f"variance of that of the unordered set estimator, which draws distinct ones. After {steps} steps of "
        f"fine-tuning, a random pronunciation of a held-out word is right with probability {means[OURS]:.2f} "
        f"% with the unordered set estimator and {means[COMPARED]:.2f} % with RLOO, a difference of "
        f"{over_seeds(apart.tolist()).text()} percentage points.\n"
    )
