"""Expectations over discrete random variables, and their gradients, from distinct samples."""

from importlib.metadata import version

from swor._checks import set_validate_values
from swor.diagnostics.compare import compare
from swor.diagnostics.enumeration import exact, exact_best_of
from swor.diagnostics.groups import GroupStatistics, group_statistics
from swor.diagnostics.moments import gradient_moments
from swor.estimators.additive import AdditiveTable, rloo_additive, unordered_set_additive
from swor.estimators.baselines import Baseline, MovingAverage, batch_mean, greedy, sampled_baseline
from swor.estimators.control import KnownMean, additive, controlled
from swor.estimators.coupled import arm, arsm, carms, disarm
from swor.estimators.estimator import Estimator
from swor.estimators.learning import LearnedScales
from swor.estimators.local import local_expectation, local_unordered_set
from swor.estimators.rebar_relax import ControlVariate, rebar, relax
from swor.estimators.registry import ESTIMATORS
from swor.estimators.relaxed import gumbel_softmax, reinmax, straight_through
from swor.estimators.rodeo import TangentSurrogate, rodeo
from swor.estimators.score_function import (
    deterministic_sum_and_sample_sampled_baseline,
    reinforce_batch_mean,
    reinforce_greedy,
    reinforce_moving_average,
    reinforce_no_baseline,
    reinforce_sampled_baseline,
    reinforce_shared_sampled_baseline,
    sum_and_sample_sampled_baseline,
    sum_and_sample_shared_sampled_baseline,
    unordered_set_no_baseline,
)
from swor.estimators.tangents import (
    double_control,
    rloo_tangents,
    unordered_set_double_control,
    unordered_set_tangents,
)
from swor.estimators.vimco import vimco
from swor.math.ratios import leave_one_out, log_prob_ordered, log_prob_set
from swor.rules.advantages import advantages
from swor.rules.best_of import BestOf, best_of
from swor.rules.best_of_independent import best_of_independent
from swor.rules.importance import (
    importance_weighted,
    normalize,
    normalized_importance_weighted,
    risk,
)
from swor.rules.log_success import LogSuccess, log_success, log_success_independent
from swor.rules.reinforce import rloo, single_sample, stratified, systematic
from swor.rules.sums import deterministic_sum_and_sample, raj, sum_and_sample
from swor.rules.unordered_set import murthy_variance, pair_weights, unordered_set
from swor.samplers.categorical import (
    gumbel_top_k,
    stratified_sample,
    systematic_sample,
    top_k_and_sample,
    with_replacement,
)
from swor.samplers.distinct_sequences import DistinctSequences
from swor.samplers.distributions import sample
from swor.samplers.products import Factorized
from swor.samplers.programs import DistinctRuns
from swor.samplers.rounds import DistinctRounds
from swor.samplers.sequence_model import SequenceModel
from swor.samplers.sequences import ancestral_sample, beam_search, stochastic_beam_search
from swor.samplers.sharded import gumbel_top_k_sharded
from swor.samplers.streams import distinct_from_stream
from swor.types import Sample, Scheme, Weights

__version__ = version("swor")

__all__ = [
    "ESTIMATORS",
    "AdditiveTable",
    "Baseline",
    "BestOf",
    "ControlVariate",
    "DistinctRounds",
    "DistinctRuns",
    "DistinctSequences",
    "Estimator",
    "Factorized",
    "GroupStatistics",
    "KnownMean",
    "LearnedScales",
    "LogSuccess",
    "MovingAverage",
    "Sample",
    "Scheme",
    "SequenceModel",
    "TangentSurrogate",
    "Weights",
    "additive",
    "advantages",
    "ancestral_sample",
    "arm",
    "arsm",
    "batch_mean",
    "beam_search",
    "best_of",
    "best_of_independent",
    "carms",
    "compare",
    "controlled",
    "deterministic_sum_and_sample",
    "deterministic_sum_and_sample_sampled_baseline",
    "disarm",
    "distinct_from_stream",
    "double_control",
    "exact",
    "exact_best_of",
    "gradient_moments",
    "greedy",
    "group_statistics",
    "gumbel_softmax",
    "gumbel_top_k",
    "gumbel_top_k_sharded",
    "importance_weighted",
    "leave_one_out",
    "local_expectation",
    "local_unordered_set",
    "log_prob_ordered",
    "log_prob_set",
    "log_success",
    "log_success_independent",
    "murthy_variance",
    "normalize",
    "normalized_importance_weighted",
    "pair_weights",
    "raj",
    "rebar",
    "reinforce_batch_mean",
    "reinforce_greedy",
    "reinforce_moving_average",
    "reinforce_no_baseline",
    "reinforce_sampled_baseline",
    "reinforce_shared_sampled_baseline",
    "reinmax",
    "relax",
    "risk",
    "rloo",
    "rloo_additive",
    "rloo_tangents",
    "rodeo",
    "sample",
    "sampled_baseline",
    "set_validate_values",
    "single_sample",
    "stochastic_beam_search",
    "straight_through",
    "stratified",
    "stratified_sample",
    "sum_and_sample",
    "sum_and_sample_sampled_baseline",
    "sum_and_sample_shared_sampled_baseline",
    "systematic",
    "systematic_sample",
    "top_k_and_sample",
    "unordered_set",
    "unordered_set_additive",
    "unordered_set_double_control",
    "unordered_set_no_baseline",
    "unordered_set_tangents",
    "vimco",
    "with_replacement",
]
