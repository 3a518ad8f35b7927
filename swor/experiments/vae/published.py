"""The paper's figures for the VAE, and how its estimators are named and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from swor.estimators.registry import ESTIMATORS


class Domain(NamedTuple):
    """Data, and the outcomes of the latent variable: runs of different ones are not compared."""

    data: str
    dims: int
    categories: int


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
    "reinforce_shared_sampled_baseline": Entry(
        "REINFORCE, sampled", 1, {2: 7.49, 20: 8.48}, "#000000", "--"
    ),
    "sum_and_sample": Entry("sum-and-sample, none", 4, {2: 6.29, 20: 13.77}, "#009E73", ":"),
    "sum_and_sample_shared_sampled_baseline": Entry(
        "sum-and-sample, sampled", 4, {2: 6.29, 20: 8.44}, "#009E73", "--"
    ),
    "reinforce": Entry("REINFORCE w.r., built-in", 4, {2: 6.65, 20: 7.06}, "#000000", "-"),
    "unordered_set": Entry("unordered set, built-in", 4, {2: 6.29, 20: 7.05}, "#0072B2", "-"),
}
"""Table 1; k as the paper's released code has it, where single-sample estimators have k = 1."""


NEGATIVE_ELBO = {
    ("straight_through", 1): (94.4, 97.2),
    ("reinforce_shared_sampled_baseline", 1): (84.4, 95.9),
    ("sum_and_sample_shared_sampled_baseline", 4): (82.6, 95.1),
    ("sum_and_sample_shared_sampled_baseline", 8): (80.9, 93.5),
    ("arsm", 1): (82.3, 90.5),
    ("unordered_set", 4): (71.2, 91.3),
    ("unordered_set", 8): (70.7, 91.2),
    ("reinforce", 4): (70.4, 89.8),
    ("reinforce", 8): (70.3, 90.8),
    ("relax", 1): (158.8, 158.6),
}
"""Lowest smoothed −ELBO in training and validation, MNIST, 10^20 outcomes, by estimator and k."""


def paper_k(estimator: str) -> int:
    """The number of samples that an estimator has in the paper; 4, if the paper does not have it."""
    if estimator in ("straight_through", "gumbel_softmax"):
        return 1
    return PAPER[estimator].k if estimator in PAPER else 4


def paper_log_variance(estimator: str, domain: Domain) -> float | None:
    """The figure in Table 1, if there is one."""
    if (domain.data, domain.categories) != ("mnist", 10) or estimator not in PAPER:
        return None
    return PAPER[estimator].published.get(domain.dims)


def paper_elbo(estimator: str, k: int, domain: Domain) -> tuple[float, float] | None:
    """The lowest −ELBO in training and validation in Figure 2, if they are there."""
    return NEGATIVE_ELBO.get((estimator, k)) if domain == Domain("mnist", 20, 10) else None


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


OTHERS = [
    Style(colour, line)
    for line in ("-", "--", "-.", ":")
    for colour in ("#E69F00", "#56B4E9", "#8C564B", "#999999", "#6A3D9A", "#B2DF8A")
]


def style(estimator: str) -> Style:
    """How an estimator is drawn: as its entry says, or as no other that the table does not have."""
    if estimator in PAPER:
        return Style(PAPER[estimator].colour, PAPER[estimator].line)
    others = ["straight_through", *(n for n in ESTIMATORS if n not in PAPER)]
    return OTHERS[others.index(estimator) % len(OTHERS)]
