"""The numbers of the pages on pronunciation."""

from __future__ import annotations

from pathlib import Path

from reproduction.harness.statistics import LEVEL, with_error
from reproduction.harness.tables import committed_table, mean_and_interval
from reproduction.pronunciation.tables import COMPARED, at_the_end, gains

OURS = "unordered_set mean"
K = 4  # samples of a word in training


def answer(folder: Path) -> str:
    """Return what independent samples waste, and how training compares."""
    groups = committed_table(folder / "groups.csv").set_index("k").loc[K]
    gain = gains(committed_table(folder / "variance.csv")).loc[K]
    steps, end = at_the_end(committed_table(folder / "training" / "curves.csv"))
    apart = 100 * (end.loc[OURS] - end.loc[COMPARED]).dropna()
    means = {name: 100 * end.loc[name, "sampled"].mean() for name in (OURS, COMPARED)}
    return (
        f"Of {K} independent pronunciations of a word, {groups['duplicates']:.0f} % are duplicates and "
        f"{groups['no_signal_independent']:.0f} % of the words give no signal, and the gradient of RLOO has "
        f"{with_error(*gain[['gain', 'gain_error']])} times the variance of that of the unordered set "
        f"estimator. After {steps} steps of fine-tuning with {K} samples of each word, a draw for a held-out "
        f"word is right with a probability of {means[OURS]:.2f} % with the unordered set estimator and of "
        f"{means[COMPARED]:.2f} % with RLOO, a difference of "
        f"{mean_and_interval(apart['sampled'].tolist(), 2)} points (mean over "
        f"{len(apart)} seeds with its {LEVEL:.0%} interval).\n".replace("5%", "5 %")
    )
