"""Index tables as constants of compiled code.

Tracing the loops that make the tables would take a minute, so the compiler takes their results as they
are. This module is imported during compilation only: marking a function as constant loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from swor.math import _subset_tables
from swor.math._subset_tables import Level


def _tables(k: int, device: torch.device) -> tuple[tuple[Level, ...], Tensor]:
    return _subset_tables.tables(k, device)


tables: Callable[[int, torch.device], tuple[tuple[Level, ...], Tensor]]
tables = torch.compiler.assume_constant_result(_tables)
