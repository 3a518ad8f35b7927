"""Checks that TRL has the methods that the trainer overrides and the attributes that it reads.

TRL releases a version about every two weeks, and most of them change nothing here. The signatures are
therefore checked, rather than the version.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

TESTED = "trl>=0.29,<1.17"
OVERRIDDEN: dict[str, list[str] | None] = {
    "_generate_single_turn": ["prompt_ids", "images", "multimodal_fields"],
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_generate_and_score_completions": ["inputs"],
    "_compute_loss": ["model", "inputs"],
    "_get_per_token_logps_and_entropies": None,  # which passes on whatever it is given
}
"""The methods that the trainer overrides, and their arguments."""
READ = [
    *("_logs", "_metrics", "beta", "epsilon_high", "epsilon_low", "max_completion_length"),
    *("model_wrapped", "normalize_advantages", "num_generations", "num_generations_eval"),
    *("reward_func_names", "reward_funcs", "reward_weights"),
]


def check_methods() -> None:
    """Check that the methods of ``RLOOTrainer`` that the trainer overrides have the expected arguments."""
    installed = _version()
    from trl import RLOOTrainer

    for name, expected in OVERRIDDEN.items():
        method = getattr(RLOOTrainer, name, None)
        found = parameters(method) if method is not None else None
        if found is None or expected not in (found, None):
            has = "has no such method" if found is None else f"has {name}({', '.join(found)})"
            arguments = "…" if expected is None else ", ".join(expected)
            raise ImportError(
                f"RLOOTrainer of trl {installed} {has}; expected {name}({arguments}), which "
                f"UnorderedSetTrainer overrides. Install a version that it is tested with: "
                f"pip install '{TESTED}'"
            )


def check_attributes(trainer: Any) -> None:
    """Check that the trainer has the attributes that are read."""
    missing = [name for name in READ if not hasattr(trainer, name)]
    if missing:
        raise AttributeError(
            f"RLOOTrainer of trl {_version()} has no attribute {missing[0]}, which UnorderedSetTrainer "
            f"reads. Install a version that it is tested with: pip install '{TESTED}'"
        )


def accepted(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are not None; it is an error if the function does not take one of them."""
    chosen = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(set(chosen) - set(parameters(function)))
    if unknown:
        raise TypeError(
            f"{unknown[0]} is given, but {function.__qualname__} of trl {_version()} has no such "
            f"argument. Leave it out, or install a newer version: pip install '{TESTED}'"
        )
    return chosen


def refuse_unknown(cls: type, given: dict[str, Any], known: Sequence[str]) -> None:
    """Raise an error for options that the class does not have, such as those of GRPO."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(
            f"{unknown[0]} is given, but {cls.__name__} has no such option; expected those of RLOO in "
            f"trl {_version()}. Options of GRPO alone (loss_type, importance_sampling_level, tools) have no "
            "meaning for the unordered set estimator. Leave it out."
        )


def known(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the function takes; older versions do without the others."""
    return {name: value for name, value in given.items() if name in parameters(function)}


def parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's arguments, without self."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


def _version() -> str:
    try:
        return version("trl")
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(
            "swor.integrations.trl needs the package 'trl', which is not installed. Install it "
            f"with: pip install '{TESTED}'",
            name="trl",
        ) from error
