"""The best of k solutions, for distinct solutions and for rl4co's own strategies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swor.integrations.rl4co._decoding import from_rows
from swor.integrations.rl4co.solutions import sample_solutions

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict

STRATEGIES = ("sampling", "multistart_sampling", "multistart_greedy")


@torch.no_grad()
def best_of_k(
    policy: ConstructivePolicy,
    env: RL4COEnvBase,
    td: TensorDict,
    k: int,
    *,
    methods: Sequence[str] = ("distinct", "sampling", "multistart_greedy"),
    start: int | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Return the best reward among the first 1, 2, …, k solutions of every instance, by method.

    All methods decode k solutions of each instance, with the policy in evaluation mode.

    Args:
        policy: any constructive policy of rl4co.
        env: the environment.
        td: instances, as ``env.reset`` returns them, (batch,).
        k: the number of solutions per instance.
        methods: ``distinct``, without replacement (:func:`sample_solutions`), and rl4co's own
            ``sampling``, ``multistart_sampling`` and ``multistart_greedy``.
        start: the first action of distinct solutions; None lets the policy choose.
        generator: the source of randomness of distinct solutions; rl4co's own use torch's default.

    Returns:
        (batch, k) for every method; column j − 1 has the best of the first j.
    """
    best = {}
    with _evaluating(policy):
        for method in methods:
            if method == "distinct":
                found = sample_solutions(policy, env, td, k, start=start, generator=generator)
                reward = found.reward
            else:
                reward = _decoded(policy, env, td, k, method)
            best[method] = reward.cummax(-1).values
    return best


def _decoded(
    policy: ConstructivePolicy, env: RL4COEnvBase, td: TensorDict, k: int, method: str
) -> Tensor:
    """Return the rewards of k solutions by a strategy of rl4co, (batch, k)."""
    if method not in STRATEGIES:
        raise ValueError(
            f"methods has {method!r}; expected 'distinct' or one of rl4co's own, "
            f"{', '.join(STRATEGIES)}."
        )
    count = {"num_starts": k} if method.startswith("multistart") else {"num_samples": k}
    out = policy(td.clone(), env, phase="test", decode_type=method, **count)
    return from_rows(out["reward"].reshape(-1), len(td))


@contextmanager
def _evaluating(policy: ConstructivePolicy) -> Iterator[None]:
    """Switch a policy to evaluation mode; parts that are in this mode already stay in it afterwards."""
    training = [module for module in policy.modules() if module.training]
    policy.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
