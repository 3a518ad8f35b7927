"""The arguments and the results of every method: a set without edge cases, and sums over parts of it.

An impossible outcome, one of probability 0, has weight 0, and the others have the weights that they would
have without it. The methods cannot represent a probability of 0. They are given an overwhelming mass for
such an outcome instead: an outcome that is certain to be drawn first does not affect the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import check_not_nan
from swor.math._logspace import LOG_NOTHING

OVERWHELMING = 200.0


class Interior(NamedTuple):
    """A set without impossible elements. Elements come first, so that the batch is contiguous."""

    log_p: Tensor  # (k, *batch), finite; need not be normalised
    impossible: Tensor  # (k, *batch), where the log p that was given is −inf
    log_rest: Tensor  # (*batch,), −inf if no mass is left outside
    p: Tensor  # (k, *batch), as given, normalised together with rest; NaN if there is no mass at all
    rest: Tensor  # (*batch,)
    covered: Tensor  # (*batch,), where no mass is left outside

    def log_total(self) -> Tensor:
        """Return the log of the total mass, without normalisation, (*batch,)."""
        log_p = self.log_p.masked_fill(self.impossible, -torch.inf)
        return torch.cat([log_p, self.log_rest.unsqueeze(0)]).logsumexp(0)


class LeftOut(NamedTuple):
    r"""Sums over the set without one of its elements, and without two. Elements come first.

    $$p_s R(S, s) \propto \text{one}_s \, e^{\ell_s}, \qquad
    p_{s'} R^{D \setminus s}(S, s') = \text{two}_{ss'} \, e^{\ell_{s'}}$$

    The sums stay within the range of float32 for probabilities of any size.
    """

    one: Tensor  # (k, *batch)
    two: Tensor | None  # (k, k, *batch), row s, column s', if requested; a meaningless diagonal
    log_scale: Tensor  # (k, *batch), ℓ, normalised as log_p
    scale: Tensor  # (k, *batch), e^ℓ over the total mass; 0 for an impossible element


def interior(log_p: Tensor, log_rest: Tensor) -> Interior:
    """Give impossible elements an overwhelming mass, and put the elements on the first axis.

    Args:
        log_p: (*batch, k).
        log_rest: (*batch,).
    """
    log_masses = torch.cat([log_p.movedim(-1, 0), log_rest.unsqueeze(0)])
    largest, masses = log_masses.amax(0), log_masses.softmax(0)
    check_not_nan("log_p or log_rest", largest)
    log_p = log_masses[:-1]
    impossible = log_p.isneginf()
    log_p = torch.where(impossible, largest.clamp(min=LOG_NOTHING) + OVERWHELMING, log_p)
    log_rest, covered = log_masses[-1], log_masses[-1].isneginf()
    return Interior(log_p, impossible, log_rest, masses[:-1], masses[-1], covered)
