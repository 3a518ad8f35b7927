"""The paper's figures for the VAE, and how its estimators are named and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """A column of the paper's Table 1: its k there, and its figures by number of dimensions."""

    label: str
    k: int
    published: Mapping[int, float]
    colour: str  # of Okabe and Ito (2008), which colour-blind readers can tell apart
    line: str


PAPER = {
    "arsm": Entry("ARSM", 1, {2: 13.45, 20: 15.55}, "#CC79A7", "-"),
    "relax": Entry("RELAX", 1, {2: 11.67, 20: 15.86}, "#D55E00", "-"),
    "reinforce_no_baseline": Entry("REINFORCE, none", 1, {2: 11.52, 20: 13.81}, "#000000", ":"),
    "reinforce_shared_sample": Entry("REINFORCE, sampled", 1, {2: 7.49, 20: 8.48}, "#000000", "--"),
    "sum_and_sample": Entry("sum-and-sample, none", 4, {2: 6.29, 20: 13.77}, "#009E73", ":"),
    "sum_and_sample_shared_sample": Entry(
        "sum-and-sample, sampled", 4, {2: 6.29, 20: 8.44}, "#009E73", "--"
    ),
    "reinforce": Entry("REINFORCE w.r., built-in", 4, {2: 6.65, 20: 7.06}, "#000000", "-"),
    "unordered_set": Entry("unordered set, built-in", 4, {2: 6.29, 20: 7.05}, "#0072B2", "-"),
}
"""Table 1; k as the paper's released code has it, where single-sample estimators have k = 1."""


NEGATIVE_ELBO = {
    ("straight_through", 1): (94.4, 97.2),
    ("reinforce_shared_sample", 1): (84.4, 95.9),
    ("sum_and_sample_shared_sample", 4): (82.6, 95.1),
    ("sum_and_sample_shared_sample", 8): (80.9, 93.5),
    ("arsm", 1): (82.3, 90.5),
    ("unordered_set", 4): (71.2, 91.3),
    ("unordered_set", 8): (70.7, 91.2),
    ("reinforce", 4): (70.4, 89.8),
    ("reinforce", 8): (70.3, 90.8),
    ("relax", 1): (158.8, 158.6),
}
"""Lowest smoothed −ELBO in training and validation, MNIST, 10^20 outcomes, by estimator and k."""


NAMES = {"straight_through": "straight-through Gumbel-Softmax", "gumbel_softmax": "Gumbel-Softmax"}
"""Of estimators that Table 1 does not have."""


def label(estimator: str) -> str:
    """The name of an estimator in tables and legends."""
    if estimator in PAPER:
        return PAPER[estimator].label
    return NAMES.get(estimator, estimator.replace("_", " "))


class Style(NamedTuple):
    """Colour and line of an estimator."""

    colour: str
    line: str


def style(estimator: str) -> Style:
    """How an estimator is drawn; those that the table does not have are grey."""
    if estimator == "straight_through":
        return Style("#E69F00", "-")
    entry = PAPER.get(estimator)
    return Style(entry.colour, entry.line) if entry else Style("#888888", "-.")
