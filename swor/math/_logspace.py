"""Arithmetic with the logarithms of probabilities, and its precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

LOG_2 = 0.6931471805599453
LOG_NOTHING = -1e30  # in the place of log 0 where a finite number is needed
LOG_EVERYTHING = 1e30  # the log of a mass beside which all others are negligible


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of internal computations: float32 for half precision, otherwise the dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of numbers that need double precision: float64, or float32 on MPS, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def without_autocast(like: Tensor) -> AbstractContextManager[object]:
    """A context in which an autocast around the library does not lower the precision of products."""
    device = like.device.type
    # Older compilers cannot ask. They compile for no device that has no autocast.
    if torch.compiler.is_compiling():
        return torch.autocast(device, enabled=False)
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def expm1(x: Tensor) -> Tensor:
    r"""$e^x - 1$ without cancellation, also in compiled code.

    Inductor's vectorised code for ``torch.expm1`` subtracts 1 from the exponential, which cancels. Compiled
    code therefore uses $1 - e^{-|x|} = 2 t / (1 + t)$ with $t = \tanh(|x| / 2)$.
    """
    if not torch.compiler.is_compiling():
        return torch.expm1(x)
    t = torch.tanh(0.5 * x.abs())
    rise = 2.0 * t / (1.0 + t)
    return torch.where(x > 0.0, torch.exp(x) * rise, -rise)


def log1mexp(x: Tensor) -> Tensor:
    r"""$\log(1 - e^x)$ for $x \le 0$, without cancellation at either end.

    >>> log1mexp(torch.tensor([-1e-30, -50.0], dtype=torch.float64))
    tensor([-6.9078e+01, -1.9287e-22], dtype=torch.float64)
    """
    return torch.where(x > -LOG_2, torch.log(-expm1(x)), torch.log1p(-torch.exp(x)))


def log_remaining(log_p: Tensor, log_rest: Tensor) -> Tensor:
    r"""The log of the mass that is left when $b_i$ is drawn, $t_i = \text{rest} + \sum_{j \ge i} p_j$.

    The sums run from the end of the sample and have positive terms only, so nothing cancels.

    Args:
        log_p: the log-probabilities in the order in which they were drawn, (*batch, k).
        log_rest: the log of the mass outside the sample, (*batch,).

    Returns:
        (*batch, k + 1); the first entry is the log of the total mass, and the last is ``log_rest``.
    """
    backwards = torch.cat([log_rest.unsqueeze(-1), log_p.flip(-1)], dim=-1)
    return backwards.logcumsumexp(-1).flip(-1)
