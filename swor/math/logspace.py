"""Arithmetic of probabilities that are kept as logarithms."""

from __future__ import annotations

import torch
from torch import Tensor

LOG_2 = 0.6931471805599453


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision computed in: float32 for half precision, otherwise the dtype itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def expm1(x: Tensor) -> Tensor:
    r"""$e^x - 1$ without cancellation, also when compiled.

    Inductor's vectorised code for ``torch.expm1`` subtracts 1 from the exponential; there,
    $1 - e^{-|x|} = 2 t / (1 + t)$ with $t = \tanh(|x| / 2)$ is exact.
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
    r"""$\log t_i$ with $t_i = \text{rest} + \sum_{j \ge i} p_j$: the mass left when $b_i$ is drawn.

    Sums of positive terms only, from the end of the sample backwards, so nothing cancels.

    Args:
        log_p: log-probabilities in the order sampled, (*batch, k).
        log_rest: log of the mass outside the sample, (*batch,).

    Returns:
        (*batch, k + 1); the first entry is the total mass, the last is ``log_rest``.
    """
    backwards = torch.cat([log_rest.unsqueeze(-1), log_p.flip(-1)], dim=-1)
    return backwards.logcumsumexp(-1).flip(-1)
