"""What the paper says: its numbers, and its findings where it has figures without numbers."""

from __future__ import annotations

GREEDY_GAP = 0.34
"""The optimality gap of a fully trained Attention Model, 20 nodes, greedy decoding, in percent."""

WORSE_THAN_UNORDERED_SET = ("reinforce", "sum_and_sample", "reinforce_rollout")
"""Estimators that the unordered set estimator outperforms in Figure 3."""

ON_PAR = ("risk", "risk_beam_search")
"""Estimators that it performs on a par with there."""
