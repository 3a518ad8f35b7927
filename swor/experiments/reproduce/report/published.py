"""What the paper says: its numbers, and its findings where it has figures without numbers."""

from __future__ import annotations

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

GREEDY_GAP = 0.34
"""The optimality gap of a fully trained Attention Model, 20 nodes, greedy decoding, in percent."""

WORSE_THAN_UNORDERED_SET = ("reinforce", "sum_and_sample", "reinforce_rollout")
"""Estimators that the unordered set estimator outperforms in Figure 3."""

ON_PAR = ("risk", "risk_beam_search")
"""Estimators that it performs on a par with there."""
