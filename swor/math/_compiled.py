"""Results that compiled code takes as they are, instead of tracing how they are computed.

This module is imported during compilation only: marking a function as constant loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def _called(function: Callable[..., Result], *arguments: object) -> Result:
    return function(*arguments)


constant: Callable[..., object] = torch.compiler.assume_constant_result(_called)
"""Call a function, whose arguments must be constants as well."""
