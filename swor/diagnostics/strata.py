"""All stratified and all systematic samples of a small categorical, with their probabilities."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from swor.samplers.strata import invert


def all_stratified(log_probs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Indices (samples, k) and probabilities (samples,) of stratified samples.

    Args:
        log_probs: normalised log-probabilities of all outcomes, (n,).
        k: the size of the sample.
    """
    p = log_probs.exp()
    upper = p.cumsum(0)
    strata = torch.arange(k, dtype=p.dtype).unsqueeze(-1) / k
    overlap = torch.minimum(upper, strata + 1 / k) - torch.maximum(upper - p, strata)
    chances = k * overlap.clamp(min=0.0)  # (k, n), no overlap where negative
    index = torch.tensor(list(product(range(len(p)), repeat=k)))
    return index, chances[torch.arange(k), index].prod(-1)


def all_systematic(log_probs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As :func:`all_stratified`, for systematic samples: constant between the steps of u."""
    p = log_probs.exp()
    ends = torch.tensor([0.0, 1.0], dtype=p.dtype)
    steps = torch.cat([ends, (k * p.cumsum(0)).remainder(1.0)]).sort().values
    middle = 0.5 * (steps[1:] + steps[:-1]).unsqueeze(-1)
    position = (torch.arange(k, dtype=p.dtype) + middle) / k
    index = invert(p.expand(len(middle), -1).contiguous(), position)
    return index, steps.diff()
