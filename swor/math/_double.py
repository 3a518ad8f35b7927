"""Double precision: its dtype on a device, and whether products need it."""

from __future__ import annotations

import torch


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of numbers that need double precision: float64, or float32 on MPS, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def rounds_products() -> bool:
    """Return whether PyTorch may round float32 matrices, to TF32 or bfloat16, before it multiplies them."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set for each backend
        return True
