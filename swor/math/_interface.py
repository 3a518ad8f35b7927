"""The arguments and the results of every method: a set without edge cases, and sums over parts of it.

An impossible outcome, one of probability 0, has weight 0, and the others have the weights that they would
have without it. The methods cannot represent a probability of 0, so they are given an
overwhelming mass for such an outcome instead: an outcome that is certain to be drawn first does not affect
the others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import check_not_nan
from swor.math._logspace import LOG_EVERYTHING, wide_dtype, without_autocast


class Interior(NamedTuple):
    """A set without impossible elements. Elements come first, so that the batch is contiguous."""

    log_p: Tensor  # (k, batch), finite; need not be normalised
    log_rest: Tensor  # (batch,), −inf if no mass is left outside
    log_total: Tensor  # (batch,), of all masses as given; −inf if there is none at all

    @property
    def impossible(self) -> Tensor:
        """Where the probability that was given is 0, (k, batch)."""
        return self.log_p == LOG_EVERYTHING

    @property
    def covered(self) -> Tensor:
        """Where no mass is left outside, (batch,)."""
        return self.log_rest.isneginf()

    def mass(self, log_mass: Tensor) -> Tensor:
        """From logs (k, batch) to the share of the total mass; 0 for an impossible element."""
        return torch.exp(log_mass - self.log_total).nan_to_num(math.nan, posinf=0.0)


class LeftOut(NamedTuple):
    r"""Sums over the set without one of its elements, and without two. Elements come first.

    $$p_s R(S, s) \propto \text{one}_s \, e^{\ell_s}, \qquad
    p_{s'} R^{D \setminus s}(S, s') = \text{two}_{ss'} \, e^{\ell_{s'}}, \qquad
    p_s = \text{two}_{ss} \, e^{\ell_s}$$

    The sums stay within the range of float32 for probabilities of any size.
    """

    one: Tensor  # (k, batch), or (k, 1) if all are the same
    two: Tensor | None  # (k, k, batch), row s, column s', if requested
    log_scale: Tensor  # (k, batch), ℓ, normalised as log_p


def interior(log_p: Tensor, log_rest: Tensor) -> Interior:
    """Give impossible elements an overwhelming mass, and put the elements on the first axis.

    Args:
        log_p: (batch, k).
        log_rest: (batch,).
    """
    log_p = log_p.movedim(-1, 0).contiguous()
    log_total = torch.logaddexp(log_p.logsumexp(0), log_rest)
    check_not_nan("log_p or log_rest", log_total)
    log_p = log_p.nan_to_num(math.nan, posinf=math.inf, neginf=LOG_EVERYTHING)
    return Interior(log_p, log_rest, log_total)


def product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two batches of matrices, exact to the rounding of their dtype whatever the settings are.

    An autocast would lower the precision, and so would TF32 or bfloat16, with which a user may let float32
    matrices be multiplied. The matrices are then multiplied in double precision.
    """
    if torch.compiler.is_compiling():  # which cannot trace a question for a setting
        from swor.math._compiled import constant

        rounded = bool(constant(_rounds_products))
    else:
        rounded = _rounds_products()
    wide = wide_dtype(b.device) if rounded else b.dtype
    with without_autocast(b):
        return torch.bmm(a.to(wide), b.to(wide)).to(b.dtype)


def _rounds_products() -> bool:
    """Return whether PyTorch may round float32 matrices, to TF32 or bfloat16, before it multiplies them."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set for each backend
        return True
