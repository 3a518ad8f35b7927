"""Checks of arguments. Every error names the given value, the expected one and a remedy."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.func import debug_unwrap

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.2, torch.bfloat16: 0.2}

_validate_values = True


def set_validate_values(enabled: bool) -> None:
    """Turn the checks of tensor values on or off, for the whole process.

    The library checks values on the CPU: probabilities that sum to 1, costs that are finite. Each check
    reads a tensor and takes a few microseconds. It never checks values on an accelerator, where reading
    them would synchronise the device, or during compilation. Checks of shapes and dtypes, which are
    free, stay on. ``torch.distributions`` has the same switch, ``Distribution.set_default_validate_args``.

    Args:
        enabled: whether values are checked.

    >>> import swor
    >>> swor.set_validate_values(False)
    >>> s = swor.gumbel_top_k(torch.zeros(3), 2)  # not normalised, and nobody notices
    >>> swor.set_validate_values(True)
    """
    global _validate_values
    _validate_values = enabled


def may_inspect(*tensors: Tensor) -> bool:
    """Whether tensor values may be read.

    They may not during compilation, under ``torch.func.vmap``, or if that would synchronise a device.
    """
    if torch.compiler.is_compiling():
        return False
    return all(t.device.type == "cpu" and not _is_transformed(t) for t in tensors)


def _is_transformed(tensor: Tensor) -> bool:
    """Whether a tensor belongs to a transform of ``torch.func``, so that there is something to unwrap."""
    return debug_unwrap(tensor, recurse=False) is not tensor


def may_validate(*tensors: Tensor) -> bool:
    """Whether tensor values may be read, and checks of values are on."""
    return _validate_values and may_inspect(*tensors)


def _range(x: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest element, both NaN if one is: a single pass over the tensor."""
    if x.numel() == 0:
        return 1.0, 1.0
    least, most = x.aminmax()
    return least.item(), most.item()


def kind(given: object) -> str:
    """Name what was given, for messages: by its type, since the value may fill a screen."""
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    if given is None:
        return "None"
    name, module = type(given).__name__, type(given).__module__.partition(".")[0]
    named = name if module in ("builtins", "__main__") else f"{module}.{name}"
    return f"{'an' if named[0] in 'aeiou' else 'a'} {named}"


def check_tensor(name: str, given: object, dtype: torch.dtype = torch.float32) -> None:
    """Check that an argument is a tensor, and not sparse; ``dtype`` is that of the remedy."""
    if isinstance(given, Distribution):
        raise TypeError(
            f"{name} is the distribution {type(given).__name__}; expected a tensor. Draw from a "
            "distribution with sample(dist, k)."
        )
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{name} is {kind(given)}; expected a tensor. Convert it, for instance with "
            f"torch.as_tensor({name}, dtype={dtype})."
        )
    if given.layout is not torch.strided:
        raise TypeError(
            f"{name} is sparse ({given.layout}); expected a dense tensor. Convert it with "
            f"{name}.to_dense()."
        )


def known_finite(x: Tensor) -> bool:
    """Whether a look at the sum tells that all elements are finite. A sum that overflows tells nothing."""
    return may_inspect(x) and math.isfinite(x.sum().item())


def check_log_probs(name: str, log_p: Tensor) -> None:
    """Check that log-probabilities are floating-point and have at least one, non-empty axis."""
    check_tensor(name, log_p)
    if log_p.dtype not in TOLERANCE:
        raise TypeError(
            f"{name} has dtype {log_p.dtype}; expected log-probabilities in floating point, in float16, "
            f"bfloat16, float32 or float64. Convert it, for instance with {name}.float()."
        )
    if log_p.dim() < 1 or log_p.shape[-1] < 1:
        raise ValueError(
            f"{name} has shape {tuple(log_p.shape)}; expected (*batch, n) with n >= 1. "
            "Put the outcomes on the last axis."
        )


def check_not_nan(name: str, log_p: Tensor) -> None:
    """Check that log-probabilities, possibly perturbed ones, are finite or −inf."""
    if may_validate(log_p) and log_p.numel() and not log_p.amax().item() < math.inf:
        raise ValueError(
            f"{name} contains NaN or +inf; expected finite numbers or -inf. "
            "Check the computation that produced them, or normalise with torch.log_softmax."
        )


def check_finite(name: str, given: Tensor, *, minus_infinity: bool = False) -> None:
    """Check that the numbers of a sample are finite; log-probabilities may also be −inf."""
    if not may_validate(given):
        return
    least, most = _range(given)
    if not most < math.inf or (least == -math.inf and not minus_infinity):
        raise ValueError(
            f"{name} contains NaN or an infinite number; expected a finite number for every "
            "sample. Check the computation that produced it; the estimate would be NaN as well. "
            "Mask an impossible outcome in the distribution, not by its cost."
        )


def check_policy(log_p: Tensor) -> None:
    """Check that log-probabilities under another policy than the one sampled from are at most 0."""
    check_finite("log_p", log_p, minus_infinity=True)
    check_probabilities("log_p", log_p)


def check_probabilities(name: str, log_p: Tensor) -> None:
    """Check that no log-probability is above 0, up to rounding, as a negated one or a logit may be."""
    if may_validate(log_p) and log_p.numel() and log_p.amax().item() > TOLERANCE[log_p.dtype]:
        raise ValueError(
            f"{name} contains {log_p.amax().item():.6g}; expected log-probabilities, at most 0. Pass the "
            "log-probability of every sample under the policy, not its negative, a logit or a probability."
        )


def check_same(name: str, given: Tensor, like_name: str, like: Tensor) -> None:
    """Check that two tensors have the same device and precision; half precision counts as float32."""
    if given.device != like.device:
        raise ValueError(
            f"{name} is on {given.device} and {like_name} on {like.device}; expected the same device. "
            f"Move one of them, for instance with {name}.to('{like.device}')."
        )
    if _precision(given.dtype) != _precision(like.dtype):
        raise TypeError(
            f"{name} has dtype {given.dtype} and {like_name} {like.dtype}; expected the same dtype. "
            f"Convert one of them, for instance with {name}.to({_precision(like.dtype)})."
        )


def _precision(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def check_shape(name: str, given: Tensor, expected: tuple[int, ...], why: str) -> None:
    """Check that a tensor has exactly the expected shape."""
    if tuple(given.shape) != tuple(expected):
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}; expected {tuple(expected)}, {why}."
        )


def check_generator(generator: object) -> None:
    """Check that a source of randomness is a generator of PyTorch, or None."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator is {kind(generator)}; expected a torch.Generator, or None for the global one. "
            "Make one with torch.Generator().manual_seed(seed)."
        )


def check_one_per_set(name: str, given: Tensor, log_p: Tensor) -> None:
    """Check that there is one number for every sample of k outcomes, of the same precision and device."""
    check_tensor(name, given, log_p.dtype)
    check_shape(name, given, tuple(log_p.shape[:-1]), "one number for every element of the batch")
    check_same(name, given, "log_p", log_p)


def check_count(name: str, count: object, most: int | None = None) -> None:
    """Check that a number of samples is an integer from 1 to ``most``."""
    if isinstance(count, bool) or not isinstance(count, int):
        whole = hasattr(count, "__index__") and not isinstance(count, bool)  # of NumPy or a tensor
        given = f"{name} is {kind(count)}" if whole else f"{name} is {count!r}"
        cure = f"Convert it with int({name})." if whole else "Give a Python int, such as 4."
        raise TypeError(f"{given}; expected an integer. {cure}")
    if count < 1 or (most is not None and count > most):
        limit = "at least 1" if most is None else f"from 1 to {most}"
        cure = "Raise" if count < 1 else "Lower"
        raise ValueError(f"{name} is {count}; expected {limit}. {cure} {name}.")


DRAW_WHOLE = ", or give the sampler allow_fewer=True, which draws such elements of the batch whole"
DEAD_END = " Check whether a step of the model masks every symbol."


def check_k(k: int, support: int | None = None, cure: str = "") -> None:
    """Check that k is a positive integer and at most the number of outcomes."""
    check_count("k", k)
    if support is not None and k > support:
        raise ValueError(
            f"k is {k}, but there are only {support} outcomes; expected k <= {support} distinct "
            f"samples. Lower k, or sample with replacement{cure}."
        )


def check_normalized(total: Tensor, dtype: torch.dtype, steps: int = 1, cure: str = "") -> None:
    """Check that all probabilities sum to 1, up to the rounding of a product of ``steps`` factors."""
    if not may_validate(total):
        return
    least, most = _range(total)
    tolerance = TOLERANCE[dtype] * steps
    if not 1.0 - tolerance <= least <= most <= 1.0 + tolerance:
        right = (total - 1.0).abs() <= tolerance
        given = float(total[~right].flatten()[0])
        near = abs(given - 1.0) < TOLERANCE[torch.float32]
        shown = (
            f"1 {'+' if given > 1.0 else '-'} {abs(given - 1.0):.1e}" if near else f"{given:.6g}"
        )
        raise ValueError(
            f"the probabilities of an element of the batch sum to {shown}; expected 1, up to {tolerance:.0e} "
            f"in {dtype}. Normalise with torch.log_softmax(logits, -1), in the same precision, and check "
            f"the logits for NaN.{cure}"
        )


def check_set(total: Tensor, dtype: torch.dtype) -> None:
    """Check that the probabilities of a set do not exceed 1, as those of equal outcomes may."""
    if may_validate(total):
        _, most = _range(total)
        if not most <= 1.0 + TOLERANCE[dtype]:
            raise ValueError(
                f"the probabilities of the outcomes in a set sum to {most:.6g}; expected at most 1. Give "
                "outcomes that all differ, each with its log-probability as a whole; normalise logits with "
                "torch.log_softmax(logits, -1) first, and check them for NaN."
            )


def check_distinct(log_p: Tensor) -> None:
    """Check that the probabilities of a group of completions do not exceed 1, as those of equal ones may."""
    if may_validate(log_p):
        _, most = _range(log_p.double().exp().sum(-1))
        if most > 1.0 + TOLERANCE[log_p.dtype]:
            raise ValueError(
                f"the probabilities of the completions of a prompt sum to {most:.6g}; expected at most 1. "
                "Pass completions that all differ, and the log-probability of each as a whole, not a mean "
                "over its tokens."
            )


def check_possible(log_p: Tensor, what: str = "outcomes", cure: str = "") -> None:
    """Check that every sampled outcome has a positive probability, so that the support is large enough."""
    if may_validate(log_p) and log_p.numel() > 0 and log_p.amin().item() == -math.inf:
        k = log_p.shape[-1]
        support = int((log_p > -torch.inf).sum(-1).min())
        raise ValueError(
            f"k is {k}, but an element of the batch has only {support} {what} of positive "
            f"probability; expected k <= {support}. Lower k, mask fewer outcomes, or sample with "
            f"replacement{cure}."
        )
