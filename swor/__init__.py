"""Expectations over discrete random variables, and their gradients, from distinct samples."""

from swor.diagnostics.enumeration import exact
from swor.estimators.importance import (
    importance_weighted,
    normalize,
    normalized_importance_weighted,
    risk,
)
from swor.estimators.registry import ESTIMATORS, Estimator
from swor.estimators.single import reinforce, single_sample
from swor.estimators.sums import deterministic_sum_and_sample, raj, sum_and_sample
from swor.estimators.unordered import murthy_variance, unordered_set
from swor.math.ratios import leave_one_out, log_prob_ordered, log_prob_set
from swor.samplers.categorical import gumbel_top_k, top_k_and_sample, with_replacement
from swor.samplers.distributions import sample
from swor.samplers.factorized import Factorized
from swor.samplers.sequence import (
    SequenceModel,
    ancestral_sample,
    beam_search,
    stochastic_beam_search,
)
from swor.types import Sample, Scheme, Weights

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "Factorized",
    "Sample",
    "Scheme",
    "SequenceModel",
    "Weights",
    "ancestral_sample",
    "beam_search",
    "deterministic_sum_and_sample",
    "exact",
    "gumbel_top_k",
    "importance_weighted",
    "leave_one_out",
    "log_prob_ordered",
    "log_prob_set",
    "murthy_variance",
    "normalize",
    "normalized_importance_weighted",
    "raj",
    "reinforce",
    "risk",
    "sample",
    "single_sample",
    "stochastic_beam_search",
    "sum_and_sample",
    "top_k_and_sample",
    "unordered_set",
    "with_replacement",
]
