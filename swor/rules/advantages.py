"""Advantages of distinct samples as plain tensors, for trainers that take one number per completion."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from swor._checks import (
    check_count,
    check_distinct,
    check_log_probs,
    check_not_nan,
    check_one_per_set,
)
from swor.rules.best_of import best_of
from swor.rules.log_success import log_success
from swor.rules.unordered_set import unordered_set
from swor.types import Objective, Sample, Scheme, possible_values

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


def advantages(
    log_p: Tensor,
    reward: Tensor,
    *,
    log_rest: Tensor | None = None,
    objective: Objective = "mean",
    m: int | None = None,
) -> Tensor:
    r"""The advantage of each of k distinct completions, for a trainer that averages over them.

    $$\frac1k \sum_s A_s \nabla \log p_s \approx \nabla \, \text{objective}$$

    The estimate is unbiased. For the mean reward, $A_s = k \, w_s (r_s - b_s)$ with the weights and the
    baseline of :func:`swor.unordered_set`; where completions would hardly ever coincide, this is the
    advantage of RLOO. Use it in a hook that sees k log-probabilities and k rewards of a prompt and returns
    k advantages.

    Args:
        log_p: the log-probability of each completion under the distribution that it was drawn from,
            (*batch, k). The k completions of a prompt must be distinct, a sample without replacement.
        reward: the reward of each completion, (*batch, k), to be maximised.
        log_rest: the log of the probability of all other completions, (*batch,); None for log(1 − Σp).
        objective: "mean", the expected reward; "best_of", the expected best reward of m completions,
            :func:`swor.best_of`; "log_success", the log of the probability of a reward of 1 up to the order
            m, :func:`swor.log_success`.
        m: the number of draws of "best_of", or the order of "log_success"; None for "mean".

    Returns:
        (*batch, k), without gradient. A place that is left over, of log-probability −inf, has the advantage
        0. Leave it out of the sum, because 0 · (−inf) is NaN, and count it among the k.

    >>> log_p = torch.tensor([0.5, 0.25]).log()
    >>> advantages(log_p, torch.tensor([1.0, 0.0]))
    tensor([ 0.6000, -0.6000])

    References:
        | Estimating Gradients for Discrete Random Variables by Sampling without Replacement
        | (Kool et al., 2020), equation (17)
        | https://arxiv.org/abs/2002.06043
    """
    sample = _sample(log_p, log_rest)
    reward = possible_values("reward", reward, log_p, "log_p").detach()
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; expected one of {', '.join(OBJECTIVES)}.")
    if (m is None) != (objective == "mean"):
        raise ValueError(
            f"m is {m} for the objective {objective!r}; expected an integer for 'best_of' and "
            "'log_success', and None for 'mean'."
        )
    with torch.no_grad():
        coefficient = _coefficient(sample, reward, objective, m)
        possible = torch.where(log_p > -torch.inf, coefficient, 0.0)
        return (sample.k * possible).to(log_p.dtype)


def _sample(log_p: Tensor, log_rest: Tensor | None) -> Sample:
    check_log_probs("log_p", log_p)
    check_not_nan("log_p", log_p)
    if log_rest is None:
        check_distinct(log_p)
    else:
        check_one_per_set("log_rest", log_rest, log_p)
    index = torch.arange(log_p.shape[-1], device=log_p.device).expand(log_p.shape)
    return Sample(index, log_p, log_rest, scheme=Scheme.WITHOUT_REPLACEMENT)


def _coefficient(sample: Sample, reward: Tensor, objective: Objective, m: int | None) -> Tensor:
    """Return the coefficient of the gradient of each log-probability in the estimate, (*batch, k)."""
    if objective == "mean" or m is None:
        weights = unordered_set(sample)
        used = reward.to(weights.weight.dtype)  # a baseline in half precision would be rounded
        return weights.weight * (used - weights.baseline(used))
    if objective == "best_of":
        return best_of(sample, m).coefficient(reward)
    check_count("m", m, most=sample.k)
    return log_success(sample, m).coefficient(reward)
