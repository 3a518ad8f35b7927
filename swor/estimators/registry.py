"""The registry: every estimator by name, called with a function, a distribution and k."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import partial

import torch
from torch.distributions import Distribution

from swor.estimators._variables import is_binary, is_relaxable
from swor.estimators.additive import make_additive, rloo_additive, unordered_set_additive
from swor.estimators.coupled import arm, arsm, carms, disarm
from swor.estimators.estimator import (
    Estimator,
    domain_size,
    entry_of,
    lift,
    possible_categories,
)
from swor.estimators.local import local_expectation, local_unordered_set
from swor.estimators.rebar_relax import make_rebar, make_relax, rebar, relax
from swor.estimators.relaxed import (
    gumbel_softmax,
    make_relaxation,
    reinmax,
    straight_through,
)
from swor.estimators.rodeo import make_rodeo, rodeo
from swor.estimators.score_function import (
    deterministic_sum_and_sample_sampled_baseline,
    make_moving_average,
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
    make_tangents,
    rloo_tangents,
    unordered_set_double_control,
    unordered_set_tangents,
)
from swor.estimators.vimco import vimco
from swor.rules.importance import importance_weighted, normalized_importance_weighted, risk
from swor.rules.reinforce import rloo, single_sample, stratified, systematic
from swor.rules.sums import deterministic_sum_and_sample, raj, sum_and_sample
from swor.rules.unordered_set import unordered_set
from swor.samplers.distributions import factorized
from swor.types import Scheme

_WITHOUT, _WITH = Scheme.WITHOUT_REPLACEMENT, Scheme.WITH_REPLACEMENT
_unbiased, _biased = partial(lift, unbiased=True), partial(lift, unbiased=False)
_baselined = partial(entry_of, unbiased=True)
_enumerated, _sampled = partial(Estimator, proof="enumeration"), partial(Estimator, proof="z-score")

_RULES = {
    "single_sample": _unbiased(
        single_sample, _WITHOUT, equation="Kool et al. (2020), equation (8)"
    ),
    "rloo": _unbiased(
        rloo, _WITH, equation="Kool et al. (2020), equation (23); Kool et al. (2019b)"
    ),
    "unordered_set": _unbiased(
        unordered_set, _WITHOUT, equation="Kool et al. (2020), equation (17)"
    ),
    "sum_and_sample": _unbiased(
        sum_and_sample, _WITHOUT, equation="Kool et al. (2020), equations (14) and (42)"
    ),
    "raj": _unbiased(raj, _WITHOUT, equation="Raj (1956)"),
    "deterministic_sum_and_sample": _unbiased(
        deterministic_sum_and_sample,
        Scheme.TOP_K_AND_SAMPLE,
        equation="Liu et al. (2019); Kool et al. (2020), equation (13)",
    ),
    "importance_weighted": replace(
        _unbiased(importance_weighted, _WITHOUT, equation="Kool et al. (2020), equation (51)"),
        infinite_up_to=3,  # a product of two weights is of order t^-2, and the density of t of order t^k
    ),
    "normalized_importance_weighted": _biased(
        normalized_importance_weighted,
        _WITHOUT,
        equation="Kool et al. (2020), equation (52); Kool et al. (2019b)",
    ),
    "risk": _biased(
        risk, _WITHOUT, equation="Kool et al. (2020), equation (22); Edunov et al. (2018)"
    ),
    "stratified": _unbiased(
        stratified, Scheme.STRATIFIED, equation="Cochran (1977), chapter 5; Douc et al. (2005)"
    ),
    "systematic": _unbiased(
        systematic, Scheme.SYSTEMATIC, equation="Cochran (1977), chapter 8; Douc et al. (2005)"
    ),
}

_BASELINES = {
    "reinforce_no_baseline": _baselined(reinforce_no_baseline, equation="Williams (1992)"),
    "reinforce_sampled_baseline": _baselined(
        reinforce_sampled_baseline, equation="Williams (1992); Liu et al. (2019)"
    ),
    "reinforce_shared_sampled_baseline": _baselined(
        reinforce_shared_sampled_baseline, equation="Williams (1992); Liu et al. (2019)"
    ),
    "reinforce_batch_mean": _baselined(reinforce_batch_mean, equation="Williams (1992)"),
    "reinforce_moving_average": _enumerated(
        True,
        "Williams (1992)",
        reinforce_moving_average,
        mixes_batch=True,
        make_state=make_moving_average,
    ),
    "reinforce_greedy": _baselined(reinforce_greedy, equation="Rennie et al. (2017)"),
    "unordered_set_no_baseline": _baselined(
        unordered_set_no_baseline, equation="Kool et al. (2020), equation (16)"
    ),
    "sum_and_sample_sampled_baseline": _baselined(
        sum_and_sample_sampled_baseline, equation="Kool et al. (2020), equation (14)"
    ),
    "sum_and_sample_shared_sampled_baseline": _baselined(
        sum_and_sample_shared_sampled_baseline, equation="Kool et al. (2020), equation (14)"
    ),
    "deterministic_sum_and_sample_sampled_baseline": _baselined(
        deterministic_sum_and_sample_sampled_baseline,
        equation="Liu et al. (2019); Kool et al. (2020), equation (13)",
    ),
}


def _size(dist: Distribution | None) -> tuple[int, int]:
    """Return the number of variables and the number of categories of each."""
    if dist is None:
        raise ValueError(
            "no distribution was given; expected one, because the number of evaluations depends on "
            "its size. Call evaluations(k, dist)."
        )
    variables = factorized(dist)
    return variables.length, variables.categories


def _twice(k: int, dist: Distribution | None) -> int:
    return 2 * k


def _arsm(k: int, dist: Distribution | None) -> int:
    _, c = _size(dist)
    return k * (c * (c - 1) // 2 + 1)


def _local_expectation(k: int, dist: Distribution | None) -> int:
    n, c = _size(dist)
    return k * (n * (c - 1) + 1)


def _local_unordered_set(k: int, dist: Distribution | None) -> int:
    n, _ = _size(dist)
    return n * (k - 1) + 1


def _categories(dist: Distribution) -> int:
    """Return the number of possible categories of the variable that has the fewest."""
    return min(map(min, possible_categories(dist)))


def _has_no_mask(dist: Distribution) -> bool:
    """Return whether all categories have a positive probability."""
    return not bool((factorized(dist).log_probs == -torch.inf).any())


_CALLABLES = {
    "gumbel_softmax": _sampled(
        False,
        "Jang et al. (2017); Maddison et al. (2017)",
        gumbel_softmax,
        defined_for=is_relaxable,
        make_state=partial(make_relaxation, gumbel_softmax),
    ),
    "straight_through": _sampled(
        False,
        "Jang et al. (2017); Bengio et al. (2013)",
        straight_through,
        defined_for=is_relaxable,
        make_state=partial(make_relaxation, straight_through),
    ),
    "reinmax": _enumerated(False, "Liu et al. (2023)", reinmax, defined_for=is_relaxable),
    "rebar": _sampled(
        True,
        "Tucker et al. (2017)",
        rebar,
        count=_twice,
        defined_for=is_relaxable,
        make_state=make_rebar,
    ),
    "relax": _sampled(
        True, "Grathwohl et al. (2018)", relax, defined_for=_has_no_mask, make_state=make_relax
    ),
    "arm": _sampled(True, "Yin and Zhou (2019a)", arm, count=_twice, defined_for=is_binary),
    "disarm": _sampled(
        True, "Dong et al. (2020); Yin et al. (2020)", disarm, count=_twice, defined_for=is_binary
    ),
    "arsm": _sampled(True, "Yin et al. (2019b)", arsm, count=_arsm),
    "local_expectation": _enumerated(
        True,
        "Titsias and Lázaro-Gredilla (2015); De Smet et al. (2023)",
        local_expectation,
        count=_local_expectation,
    ),
    "local_unordered_set": _enumerated(
        True,
        "Kool et al. (2020), equation (17); Titsias and Lázaro-Gredilla (2015)",
        local_unordered_set,
        count=_local_unordered_set,
        largest_k=_categories,
    ),
    # Unbiased for its own objective, E[log (1/k) Σ exp f], and therefore biased for E[f].
    "vimco": _enumerated(False, "Mnih and Rezende (2016)", vimco),
}

_CONTROL_VARIATES = {
    "rloo_additive": _enumerated(
        True,
        "Kool et al. (2019b); Paisley et al. (2012)",
        rloo_additive,
        make_state=partial(make_additive, rloo_additive),
        takes_context=True,
    ),
    "unordered_set_additive": _enumerated(
        True,
        "Kool et al. (2020), equation (17); Paisley et al. (2012)",
        unordered_set_additive,
        largest_k=domain_size,
        make_state=partial(make_additive, unordered_set_additive),
        takes_context=True,
    ),
    "double_control": _enumerated(
        True,
        "Titsias and Shi (2022)",
        double_control,
        defined_for=is_relaxable,
        make_state=partial(make_tangents, double_control, 2),
    ),
    "unordered_set_double_control": _enumerated(
        True,
        "Kool et al. (2020), equation (17); Titsias and Shi (2022)",
        unordered_set_double_control,
        largest_k=domain_size,
        defined_for=is_relaxable,
        make_state=partial(make_tangents, unordered_set_double_control, 2),
    ),
    "rloo_tangents": _enumerated(
        True,
        "Titsias and Shi (2022); Shi et al. (2022)",
        rloo_tangents,
        defined_for=is_relaxable,
        make_state=partial(make_tangents, rloo_tangents, 5),
    ),
    "unordered_set_tangents": _enumerated(
        True,
        "Kool et al. (2020), equation (17); Titsias and Shi (2022)",
        unordered_set_tangents,
        largest_k=domain_size,
        defined_for=is_relaxable,
        make_state=partial(make_tangents, unordered_set_tangents, 5),
    ),
    "rodeo": _enumerated(
        True, "Shi et al. (2022)", rodeo, defined_for=is_relaxable, make_state=make_rodeo
    ),
    "carms": _sampled(True, "Dimitriev and Zhou (2021)", carms),
}


class UnknownEstimatorError(KeyError):
    """There is no estimator of this name; the message has the near names, and all others."""

    def __str__(self) -> str:
        """Return the message, which a KeyError would quote."""
        name, names = self.args
        near = get_close_matches(str(name), names)
        guess = f" (do you mean {' or '.join(map(repr, near))}?)" if near else ""
        return f"there is no estimator {name!r}{guess}; expected one of {', '.join(names)}."


class Registry(dict[str, Estimator]):
    """Estimators by name, with an error for other names that lists those, shown as a table.

    >>> Registry({name: ESTIMATORS[name] for name in ("risk", "relax")})
    risk   biased            Kool et al. (2020), equation (22); Edunov et al. (2018)
    relax  unbiased  learns  Grathwohl et al. (2018)
    """

    def __missing__(self, name: object) -> Estimator:
        raise UnknownEstimatorError(name, tuple(self))

    def __repr__(self) -> str:
        """Return a line for every estimator: its name, whether it is unbiased and learns, its reference."""
        width = max(map(len, self), default=0)
        return "\n".join(
            f"{name:{width}}  {'unbiased' if entry.unbiased else 'biased':8}  "
            f"{'learns' if entry.learns else '':6}  {entry.equation}"
            for name, entry in self.items()
        )


ESTIMATORS: dict[str, Estimator] = Registry(
    {**_RULES, **_BASELINES, **_CONTROL_VARIATES, **_CALLABLES}
)
"""All estimators by name.

A name is the same in this table, as a function of ``swor``, in CSV files, in figures and on the command
line.
"""
