r"""Weights for a policy $p$ that differs from the distribution sampled from, $q$.

$$w_s \leftarrow w_s \frac{p_s}{q_s}, \qquad M_{ss'} \leftarrow M_{ss'} \frac{p_{s'}}{q_{s'}}$$

A weight of about $q_s$ underflows in float32 if $q_s < 10^{-38}$, and the product would be 0 however large
the ratio is. The weights of the unordered set estimator have another form, $\exp(\log R + \log p)$, which
does not underflow. For other rules such a sample is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from swor._checks import may_inspect, may_validate
from swor.math._logspace import wide_dtype

LogRatios = Callable[[], tuple[Tensor, Tensor | None]]
"""Returns log(w / q), (*batch, k), and log(M / q), (*batch, k, k), or None if there is no baseline."""

LARGEST_ERROR = 0.01  # of a product that is still used: a hundredth of the whole mass


@torch.no_grad()
def off_policy(
    weight: Tensor,
    rows: Tensor | None,
    log_q: Tensor,
    log_p: Tensor,
    log_ratios: LogRatios | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the weights, (*batch, k), and the baseline weights, (*batch, k, k), for another policy.

    They are given for the distribution sampled from, q, together with their other form if there is one.
    """
    # The ratio may exceed the range of float32 where its product with a weight does not.
    wide, impossible = wide_dtype(log_p.device), log_q == -torch.inf
    log_ratio = (log_p.to(wide) - log_q.to(wide)).masked_fill(impossible, -torch.inf)
    info, most, checked = torch.finfo(weight.dtype), _largest(log_ratio), may_validate(log_ratio)
    may_underflow = most > math.log(LARGEST_ERROR / info.tiny)
    if log_ratios is not None and may_underflow:
        log_weight, log_rows = log_ratios()
        target = log_p.to(log_weight.dtype).masked_fill(impossible, -torch.inf)
        found = torch.exp(log_weight + target)
        rows = None if log_rows is None else torch.exp(log_rows + target.unsqueeze(-2))
    else:
        if checked and may_underflow:
            _check_underflow(weight, log_ratio)
        ratio = log_ratio.exp()
        found = _times(weight, ratio)
        rows = None if rows is None else _times(rows, ratio.unsqueeze(-2))
    if checked and most > _log_largest(weight.dtype):
        _refuse_large(most, found, rows)
    return found, rows


def check_overflow(log_q: Tensor, log_p: Tensor, *weights: Tensor) -> None:
    """Check that weights that were corrected for another policy are finite, with room for a cost."""
    if not may_validate(log_q, log_p, *weights):
        return
    most = _largest((log_p - log_q).masked_fill(log_q == -torch.inf, -torch.inf))
    if most > _log_largest(weights[0].dtype):
        _refuse_large(most, *weights)


def _log_largest(dtype: torch.dtype) -> float:
    """Return the log of the largest weight: products of two of them and a cost are still finite."""
    return 0.4 * math.log(torch.finfo(dtype).max)


def _times(weights: Tensor, ratio: Tensor) -> Tensor:
    """Return the product in the precision of the weights; 0 where a weight is, whatever the ratio is."""
    product = torch.where(weights == 0.0, 0.0, weights.to(ratio.dtype) * ratio)
    return product.to(weights.dtype)


def _largest(log_ratio: Tensor) -> float:
    """Return the largest ratio, or infinity if values may not be read."""
    if not may_inspect(log_ratio):
        return math.inf
    return log_ratio.amax().item() if log_ratio.numel() else -math.inf


def _check_underflow(weight: Tensor, log_ratio: Tensor) -> None:
    info = torch.finfo(weight.dtype)
    # A weight below tiny is off by up to tiny · eps, and the ratio magnifies this error.
    magnified = log_ratio > math.log(LARGEST_ERROR) - math.log(info.tiny) - math.log(info.eps)
    wrong = magnified & (weight < info.tiny)
    if bool(wrong.any()):
        raise ValueError(
            f"a sample has a weight below {info.tiny:.1g}, the smallest number of {weight.dtype}, and is "
            f"e^{log_ratio[wrong].max():.0f} times as probable under log_p; expected a weight that can be "
            "multiplied by this ratio. Draw the sample from log-probabilities in float64, or use "
            "swor.unordered_set."
        )


def _refuse_large(most: float, *weights: Tensor | None) -> None:
    for weight in weights:
        largest = 0.0 if weight is None else math.exp(_log_largest(weight.dtype))
        if weight is not None and not bool((weight.abs() <= largest).all()):
            raise ValueError(
                f"a sample is e^{most:.0f} times as probable under log_p as under the distribution it was "
                f"drawn from, and has a weight above {largest:.1g}; expected two policies that are nearer to "
                "each other. Draw new samples from a policy near the one that is trained."
            )
