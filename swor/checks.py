"""Checks of what a caller gives: each error says what was given, what was expected, what to do."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.2, torch.bfloat16: 0.2}


def may_inspect(*tensors: Tensor) -> bool:
    """Whether values may be looked at: not while compiling, nor where it would stall a device."""
    return not torch.compiler.is_compiling() and all(t.device.type == "cpu" for t in tensors)


def check_log_probs(name: str, log_p: Tensor) -> None:
    """Log-probabilities are floating-point, with at least one axis, which is not empty."""
    if not log_p.is_floating_point():
        raise TypeError(
            f"{name} has dtype {log_p.dtype}; expected log-probabilities in floating point. "
            f"Convert it, for instance with {name}.float()."
        )
    if log_p.dim() < 1 or log_p.shape[-1] < 1:
        raise ValueError(
            f"{name} has shape {tuple(log_p.shape)}; expected (*batch, n) with n >= 1. "
            "Put the outcomes on the last axis."
        )


def check_not_nan(name: str, log_p: Tensor) -> None:
    """Log-probabilities are numbers or −inf."""
    if may_inspect(log_p) and not bool((log_p < torch.inf).all()):
        raise ValueError(
            f"{name} contains NaN or +inf; expected log-probabilities, at most 0. "
            "Look for the step that made them, or normalise with torch.log_softmax."
        )


def check_same(name: str, given: Tensor, like_name: str, like: Tensor) -> None:
    """Two tensors that go together share device and precision; half precision goes with float32."""
    if given.device != like.device:
        raise ValueError(
            f"{name} is on {given.device} and {like_name} on {like.device}; expected one device. "
            f"Move one, for instance with {name}.to('{like.device}')."
        )
    if _precision(given.dtype) != _precision(like.dtype):
        raise TypeError(
            f"{name} has dtype {given.dtype} and {like_name} {like.dtype}; expected the same. "
            f"Convert one, for instance with {name}.to({like.dtype})."
        )


def _precision(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def check_shape(name: str, given: Tensor, expected: tuple[int, ...], why: str) -> None:
    """A tensor has exactly the shape that goes with the others."""
    if tuple(given.shape) != tuple(expected):
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}; expected {tuple(expected)}, {why}."
        )


def check_count(name: str, count: object, most: int | None = None) -> None:
    """A number of samples is a whole number, at least 1."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} is {count!r}; expected a whole number of samples, such as 4.")
    if count < 1 or (most is not None and count > most):
        limit = "at least 1" if most is None else f"from 1 to {most}"
        raise ValueError(f"{name} is {count}; expected {limit}.")


def check_k(k: int, support: int | None = None) -> None:
    """The number of samples is a positive whole number, no larger than the number of outcomes."""
    check_count("k", k)
    if support is not None and k > support:
        raise ValueError(
            f"k is {k}, but there are only {support} outcomes; expected k <= {support} distinct "
            "samples. Lower k, or sample with replacement."
        )


def check_normalized(total: Tensor, dtype: torch.dtype, steps: int = 1) -> None:
    """The probabilities of all outcomes sum to 1, to the rounding of a product of ``steps``."""
    if not may_inspect(total):
        return
    right = (total - 1.0).abs() <= TOLERANCE[dtype] * steps
    if not bool(right.all()):
        given = float(total[~right].flatten()[0])
        raise ValueError(
            f"the probabilities of an element of the batch sum to {given:.6g}; expected 1. "
            "Normalise with torch.log_softmax(logits, -1), and look for NaN in the logits."
        )


def check_possible(log_p: Tensor, what: str = "outcomes") -> None:
    """Every sampled outcome has a positive probability: the support was large enough."""
    if may_inspect(log_p) and bool((log_p == -torch.inf).any()):
        k = log_p.shape[-1]
        support = int((log_p > -torch.inf).sum(-1).min())
        raise ValueError(
            f"k is {k}, but an element of the batch has only {support} {what} of positive "
            f"probability; expected k <= {support}. Lower k, mask fewer, or sample with replacement."
        )
