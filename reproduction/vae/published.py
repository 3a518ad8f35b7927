"""The numbers that the paper reports for the VAE, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Domain(NamedTuple):
    """The data and the outcomes of the latent variable; runs of different ones are not compared."""

    data: str
    dims: int
    categories: int

    @property
    def title(self) -> str:
        """The data and the number of outcomes, in words.

        >>> Domain("mnist", 20, 10).title
        'MNIST, $10^{20}$'
        """
        data = {"mnist": "MNIST", "binarized-mnist": "binarised MNIST"}.get(self.data, self.data)
        return f"{data}, ${self.categories}^{{{self.dims}}}$"


class Published(NamedTuple):
    """A column of Table 1: the number of samples, and the log-variance by number of dimensions."""

    k: int
    log_variance: Mapping[int, float]


PAPER = {
    "arsm": Published(1, {2: 13.45, 20: 15.55}),
    "relax": Published(1, {2: 11.67, 20: 15.86}),
    "reinforce_no_baseline": Published(1, {2: 11.52, 20: 13.81}),
    "reinforce_shared_sampled_baseline": Published(1, {2: 7.49, 20: 8.48}),
    "sum_and_sample": Published(4, {2: 6.29, 20: 13.77}),
    "sum_and_sample_shared_sampled_baseline": Published(4, {2: 6.29, 20: 8.44}),
    "rloo": Published(4, {2: 6.65, 20: 7.06}),
    "unordered_set": Published(4, {2: 6.29, 20: 7.05}),
}
"""Table 1; k as in the paper's released code, where single-sample estimators have k = 1."""

NEGATIVE_ELBO = {
    ("straight_through", 1): (94.4, 97.2),
    ("reinforce_shared_sampled_baseline", 1): (84.4, 95.9),
    ("sum_and_sample_shared_sampled_baseline", 4): (82.6, 95.1),
    ("sum_and_sample_shared_sampled_baseline", 8): (80.9, 93.5),
    ("arsm", 1): (82.3, 90.5),
    ("unordered_set", 4): (71.2, 91.3),
    ("unordered_set", 8): (70.7, 91.2),
    ("rloo", 4): (70.4, 89.8),
    ("rloo", 8): (70.3, 90.8),
    ("relax", 1): (158.8, 158.6),
}
"""Lowest smoothed −ELBO in training and validation, MNIST, 10^20 outcomes, by estimator and k."""

WINDOW = 100
"""Number of consecutive epochs whose mean is a point of the paper's smoothed curves."""

LEARNING_RATES = {"straight_through": 1e-4, "gumbel_softmax": 1e-4, "relax": 1e-4, "arsm": 3e-4}
"""Learning rates of Adam; 1e-3 for all other estimators."""

SAMPLED_KL = ("arsm",)
"""Estimators whose cost includes the sampled KL."""


def paper_k(estimator: str) -> int:
    """Return the number of samples of an estimator in the paper; 4 if it is not in the paper."""
    if estimator in ("straight_through", "gumbel_softmax"):
        return 1
    return PAPER[estimator].k if estimator in PAPER else 4


def paper_log_variance(estimator: str, domain: Domain) -> float | None:
    """Return the log-variance in Table 1, if it is there."""
    if (domain.data, domain.categories) != ("mnist", 10) or estimator not in PAPER:
        return None
    return PAPER[estimator].log_variance.get(domain.dims)


def paper_elbo(estimator: str, k: int, domain: Domain) -> tuple[float, float] | None:
    """Return the lowest −ELBO in training and validation in Figure 2, if it is there."""
    return NEGATIVE_ELBO.get((estimator, k)) if domain == Domain("mnist", 20, 10) else None
