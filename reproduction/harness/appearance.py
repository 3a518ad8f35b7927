"""The appearance of estimators in all figures and tables: a label, colour, line and marker for each.

Colour and marker say the family of an estimator. The line says its baseline: solid for one that is
built in or learned, dotted for a sampled one, dashed for none; biased estimators are dash-dotted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from swor.estimators.registry import ESTIMATORS


class Appearance(NamedTuple):
    """How an estimator is drawn, in terms of matplotlib.

    Attributes:
        label: in legends and tables.
        colour: of lines and markers.
        line: "-", "--", ":" or "-.".
        marker: of points; filled if the line is solid.
    """

    label: str
    colour: str
    line: str
    marker: str

    @property
    def line_style(self) -> dict[str, Any]:
        """The options of a line without markers."""
        return {"color": self.colour, "linestyle": self.line}

    @property
    def point_style(self) -> dict[str, Any]:
        """The options of markers."""
        face = self.colour if self.line == "-" else "white"
        return {"color": self.colour, "marker": self.marker, "markerfacecolor": face}


FAMILIES = {
    "reinforce": ("#444444", "s"),
    "rloo": ("#444444", "s"),
    "unordered_set": ("#0072b2", "o"),
    "risk": ("#d55e00", "P"),
    "sum_and_sample": ("#008a64", "v"),
    "normalized_importance_weighted": ("#cc5f9b", "d"),
    "deterministic_sum_and_sample": ("#b37700", "^"),
    "reinforce_rollout": ("#e69f00", "<"),
    "straight_through": ("#7a5cd6", "*"),
    "relax": ("#a03e20", "X"),
    "arsm": ("#b8348b", "h"),
    "importance_weighted": ("#8a6fb0", "D"),
    "reinforce_batch_mean": ("#8c8c8c", ">"),
    "rloo_additive": ("#c44536", "D"),
    "unordered_set_additive": ("#2a9d8f", "^"),
    "double_control": ("#bc8f00", "v"),
    "unordered_set_double_control": ("#5e3c99", "P"),
    "rloo_tangents": ("#7f6000", "<"),
    "unordered_set_tangents": ("#117733", "*"),
    "rodeo": ("#6b8e23", ">"),
    "carms": ("#e07b91", "h"),
    "exact": ("#000000", "."),
    "risk_beam_search": ("#4b2e83", "p"),
}
"""Colours and markers; an estimator belongs to the longest of these names that its name begins with."""

LABELS = {
    "exact": ("Exact gradient", "--"),
    "reinforce_no_baseline": ("REINFORCE, no baseline", "--"),
    "reinforce_sampled_baseline": ("REINFORCE, sampled baseline", ":"),
    "reinforce_shared_sampled_baseline": ("REINFORCE, shared sampled baseline", ":"),
    "rloo": ("RLOO", "-"),
    "reinforce_batch_mean": ("REINFORCE, batch mean", "-"),
    "reinforce_rollout": ("REINFORCE, greedy rollout", "-"),
    "deterministic_sum_and_sample": ("Deterministic sum-and-sample", "--"),
    "deterministic_sum_and_sample_sampled_baseline": (
        "Deterministic sum-and-sample, sampled baseline",
        ":",
    ),
    "sum_and_sample": ("Stochastic sum-and-sample", "--"),
    "sum_and_sample_sampled_baseline": ("Stochastic sum-and-sample, sampled baseline", ":"),
    "sum_and_sample_shared_sampled_baseline": (
        "Stochastic sum-and-sample, shared sampled baseline",
        ":",
    ),
    "importance_weighted": ("Importance-weighted, built-in baseline", "-"),
    "normalized_importance_weighted": ("Normalised importance-weighted", "-."),
    "unordered_set_no_baseline": ("Unordered set, no baseline", "--"),
    "unordered_set": ("Unordered set, built-in baseline", "-"),
    "rloo_additive": ("RLOO, additive control variate", "-"),
    "unordered_set_additive": ("Unordered set, additive control variate", "-"),
    "double_control": ("Double control variates", "-"),
    "unordered_set_double_control": ("Unordered set, double control variates", "-"),
    "rloo_tangents": ("RLOO, tangents", "-"),
    "rodeo": ("RODEO", "-"),
    "unordered_set_tangents": ("Unordered set, tangents", "-"),
    "carms": ("CARMS", "-"),
    "risk": ("RISK", "-."),
    "risk_beam_search": ("RISK, beam search", "-."),
    "arsm": ("ARSM", "-"),
    "relax": ("RELAX", "-"),
    "straight_through": ("Straight-through Gumbel-Softmax", "-."),
}
"""Labels and lines of the estimators that the figures of the paper compare."""

OTHER_LABELS = {
    "reinforce_moving_average": "REINFORCE, moving average",
    "reinforce_greedy": "REINFORCE, greedy baseline",
    "gumbel_softmax": "Gumbel-Softmax",
    "reinmax": "ReinMax",
    "rebar": "REBAR",
    "arm": "ARM",
    "disarm": "DisARM",
}
"""Spellings of other estimators; the rest have their name without underscores."""

OTHERS = [
    (colour, line)
    for line in ("-", "--", "-.", ":")
    for colour in ("#e69f00", "#56b4e9", "#8c564b", "#999999", "#6a3d9a", "#b2df8a")
]


SERIES = {
    "rl4co_rollout": Appearance("rl4co, greedy rollout", "#e69f00", "-", "<"),
    "rl4co_pomo": Appearance("rl4co, POMO", "#d55e00", "-", "P"),
    "distinct": Appearance("without replacement", "#0072b2", "-", "o"),
    "beam_search": Appearance("beam search", "#008a64", "-", "D"),
    "sampling": Appearance("independent", "#444444", "-", "s"),
    "multistart_sampling": Appearance("independent, many starts", "#b37700", "-", "^"),
    "multistart_greedy": Appearance("greedy, many starts", "#cc5f9b", "-", "d"),
}
"""Series of figures that are no estimators of this library: other methods, and ways to decode."""


def appearance(name: str) -> Appearance:
    """Return how an estimator is drawn; one without a label here gets a colour and a line of its own.

    >>> appearance("unordered_set")
    Appearance(label='Unordered set, built-in baseline', colour='#0072b2', line='-', marker='o')
    >>> appearance("local_expectation").label
    'Local expectation'
    """
    if name in SERIES:
        return SERIES[name]
    if name in LABELS:
        (label, line), (colour, marker) = LABELS[name], FAMILIES[family(name)]
        return Appearance(label, colour, line, marker)
    others = [other for other in ESTIMATORS if other not in LABELS]
    colour, line = OTHERS[others.index(name) % len(OTHERS)]
    label = OTHER_LABELS.get(name, name.replace("_", " ").capitalize())
    return Appearance(label, colour, line, ".")


def is_biased(name: str) -> bool:
    """Return whether an estimator is biased.

    >>> is_biased("risk_beam_search"), is_biased("vimco"), is_biased("rloo")
    (True, True, False)
    """
    if name in LABELS:
        return LABELS[name][1] == "-."
    return name in ESTIMATORS and not ESTIMATORS[name].unbiased


def in_order(names: Iterable[str]) -> list[str]:
    """Return different names in the order of legends, which is that of the tables above.

    >>> in_order(["unordered_set", "arm", "rloo", "unordered_set"])
    ['rloo', 'unordered_set', 'arm']
    """
    known = [*LABELS, *SERIES, *ESTIMATORS]
    return sorted(set(names), key=known.index)


def family(estimator: str) -> str:
    """Return the family of an estimator, or an empty string if it has none.

    >>> family("unordered_set_no_baseline"), family("vimco")
    ('unordered_set', '')
    """
    fitting = [name for name in FAMILIES if estimator.startswith(name)]
    return max(fitting, key=len, default="")
