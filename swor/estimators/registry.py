"""All estimators under one contract: from a function, a distribution and k to an estimate."""

from __future__ import annotations

from torch.distributions import Distribution

from swor.estimators.arsm import arsm
from swor.estimators.baselined import (
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
from swor.estimators.binary import arm, disarm
from swor.estimators.control_variates import rebar, relax
from swor.estimators.estimator import Estimate, Estimator, Rule, domain_size, draw, lift
from swor.estimators.factors import is_binary, is_relaxable, sizes
from swor.estimators.importance import importance_weighted, normalized_importance_weighted, risk
from swor.estimators.local import local_expectation, local_unordered_set
from swor.estimators.relaxed import gumbel_softmax, reinmax, straight_through
from swor.estimators.single import reinforce, single_sample
from swor.estimators.strata import equally_weighted
from swor.estimators.sums import deterministic_sum_and_sample, raj, sum_and_sample
from swor.estimators.unordered import unordered_set
from swor.estimators.vimco import vimco
from swor.samplers.distributions import can_be_listed
from swor.types import Cost, Scheme

__all__ = ["ESTIMATORS", "Cost", "Estimate", "Estimator", "Rule", "draw", "lift"]


def _twice(k: int, dist: Distribution | None) -> int:
    return 2 * k


def _one_more(k: int, dist: Distribution | None) -> int:
    return k + 1


def _arsm(k: int, dist: Distribution | None) -> int:
    _, c = sizes(dist)
    return k * (c * (c - 1) // 2 + 1)


def _local_expectation(k: int, dist: Distribution | None) -> int:
    n, c = sizes(dist)
    return k * (n * (c - 1) + 1)


def _local_unordered_set(k: int, dist: Distribution | None) -> int:
    n, _ = sizes(dist)
    return n * (k - 1) + 1


def _categories(dist: Distribution) -> int:
    return sizes(dist)[1]


_WITHOUT, _WITH = Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT

_RULES = {
    "single_sample": lift(single_sample, _WITHOUT, unbiased=True, equation="eq:ss_unbiased"),
    "reinforce": lift(reinforce, _WITH, unbiased=True, equation="eq:reinforce_with_replacement"),
    "reinforce_no_baseline": lift(
        reinforce_no_baseline, _WITH, unbiased=True, equation="Williams (1992)"
    ),
    "unordered_set": lift(
        unordered_set, _WITHOUT, unbiased=True, equation="eq:unord_set_pg_bl_estimator"
    ),
    "unordered_set_no_baseline": lift(
        unordered_set_no_baseline, _WITHOUT, unbiased=True, equation="eq:unord_set_pg_estimator"
    ),
    "sum_and_sample": lift(sum_and_sample, _WITHOUT, unbiased=True, equation="eq:ssas_estimator"),
    "raj": lift(raj, _WITHOUT, unbiased=True, equation="Raj (1956)"),
    "deterministic_sum_and_sample": lift(
        deterministic_sum_and_sample,
        Scheme.TOP_K_AND_SAMPLE,
        unbiased=True,
        equation="eq:sas_unbiased, Liu et al. (2019)",
    ),
    "importance_weighted": lift(
        importance_weighted, _WITHOUT, unbiased=True, equation="eq:iwpgbl_estimator"
    ),
    "normalized_importance_weighted": lift(
        normalized_importance_weighted, _WITHOUT, unbiased=False, equation="eq:niwpgbl_estimator"
    ),
    "risk": lift(risk, _WITHOUT, unbiased=False, equation="eq:risk_bl"),
    "stratified": lift(
        equally_weighted, Scheme.STRATIFIED, unbiased=True, equation="Cochran (1977), chapter 5"
    ),
    "systematic": lift(
        equally_weighted, Scheme.SYSTEMATIC, unbiased=True, equation="Cochran (1977), chapter 8"
    ),
}

_BASELINES = {
    "reinforce_sampled_baseline": Estimator(
        True, "eq:reinforce_with_replacement, sampled baseline", reinforce_sampled_baseline, _twice
    ),
    "reinforce_shared_sampled_baseline": Estimator(
        True,
        "eq:reinforce_with_replacement, sampled baseline",
        reinforce_shared_sampled_baseline,
        _one_more,
    ),
    "reinforce_batch_mean": Estimator(
        True, "Williams (1992)", reinforce_batch_mean, mixes_batch=True
    ),
    "reinforce_moving_average": Estimator(
        True, "Williams (1992)", reinforce_moving_average, mixes_batch=True
    ),
    "reinforce_greedy": Estimator(True, "Rennie et al. (2017)", reinforce_greedy, _one_more),
    "sum_and_sample_sampled_baseline": Estimator(
        True,
        "eq:ssas_estimator, sampled baseline",
        sum_and_sample_sampled_baseline,
        _twice,
        largest_k=domain_size,
    ),
    "sum_and_sample_shared_sampled_baseline": Estimator(
        True,
        "eq:ssas_estimator, sampled baseline",
        sum_and_sample_shared_sampled_baseline,
        _one_more,
        largest_k=domain_size,
    ),
    "deterministic_sum_and_sample_sampled_baseline": Estimator(
        True,
        "eq:sas_unbiased, sampled baseline, Liu et al. (2019)",
        deterministic_sum_and_sample_sampled_baseline,
        _twice,
        largest_k=domain_size,
        defined_for=can_be_listed,
    ),
}

_CALLABLES = {
    "gumbel_softmax": Estimator(
        False,
        "Jang et al. (2017), Maddison et al. (2017)",
        gumbel_softmax,
        defined_for=is_relaxable,
    ),
    "straight_through": Estimator(
        False, "Jang et al. (2017)", straight_through, defined_for=is_relaxable
    ),
    "reinmax": Estimator(False, "Liu et al. (2023)", reinmax, defined_for=is_relaxable),
    "rebar": Estimator(True, "Tucker et al. (2017)", rebar, _twice, defined_for=is_relaxable),
    "relax": Estimator(True, "Grathwohl et al. (2018)", relax),
    "arm": Estimator(True, "Yin and Zhou (2019)", arm, _twice, defined_for=is_binary),
    "disarm": Estimator(
        True, "Dong et al. (2020), Yin et al. (2020)", disarm, _twice, defined_for=is_binary
    ),
    "arsm": Estimator(True, "Yin et al. (2019)", arsm, _arsm),
    "local_expectation": Estimator(
        True, "Titsias and Lázaro-Gredilla (2015)", local_expectation, _local_expectation
    ),
    "local_unordered_set": Estimator(
        True,
        "eq:unord_set_pg_bl_estimator, per variable",
        local_unordered_set,
        _local_unordered_set,
        largest_k=_categories,
    ),
    # Unbiased for its own objective E[log (1/k) Σ exp f], and so not for E[f].
    "vimco": Estimator(False, "Mnih and Rezende (2016)", vimco),
}

ESTIMATORS: dict[str, Estimator] = {**_RULES, **_BASELINES, **_CALLABLES}
