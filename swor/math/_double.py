"""Double precision: its dtype on a device, uniform noise in it, and whether products need it."""

from __future__ import annotations

import torch
from torch import Tensor


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of numbers that need double precision: float64, or float32 on MPS, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def uniform_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw uniform noise from [0, 1), of the shape of ``x``, in double precision."""
    dtype = wide_dtype(x.device)
    if generator is None:
        return torch.rand_like(x, dtype=dtype)  # unlike torch.rand, it takes symbolic shapes
    return torch.rand(x.shape, generator=generator, dtype=dtype, device=x.device)


def rounds_products() -> bool:
    """Return whether PyTorch may round float32 matrices, to TF32 or bfloat16, before it multiplies them."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set for each backend
        return True
