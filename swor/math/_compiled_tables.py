"""Constants of compiled code.

Tracing the loops that make the tables would take a minute, and the compiler cannot trace a question for a
setting, so it takes their results as they are. This module is imported during compilation only: marking a
function as constant loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from swor.math import _double, _subset_tables
from swor.math._subset_tables import Tables


def _tables(k: int, dtype: torch.dtype, device: torch.device) -> Tables:
    return _subset_tables.tables(k, dtype, device)


def _rounds_products() -> bool:
    return _double.rounds_products()


tables: Callable[[int, torch.dtype, torch.device], Tables]
tables = torch.compiler.assume_constant_result(_tables)
rounds_products: Callable[[], bool]
rounds_products = torch.compiler.assume_constant_result(_rounds_products)
