"""A training step with distinct solutions beside those of rl4co's own, at as many solutions each.

    make bench-rl4co
    python benchmarks/rl4co_step.py [--batch 64] [--nodes 20] [--k 8 16]

All train rl4co's attention model with its default sizes, in float32 on one thread. REINFORCE has the
baseline "shared", which costs nothing: with a rollout baseline a step of it would cost more.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from measure import report, timings
from rl4co.envs import RL4COEnvBase, get_env
from rl4co.models import POMO, REINFORCE, AttentionModelPolicy, RL4COLitModule
from rl4co.utils.ops import unbatchify
from tensordict import TensorDict

from swor.integrations.rl4co import PolicyGradient


class Reinforce(REINFORCE):
    """rl4co's REINFORCE with k independent solutions per instance, as its POMO has k starts."""

    k = 1

    def shared_step(
        self, batch: TensorDict, batch_idx: int, phase: str, **_: Any
    ) -> dict[str, Any]:
        td = self.env.reset(batch)
        out = self.policy(td, self.env, phase=phase, num_samples=self.k)
        reward, log_p = (unbatchify(out[x], self.k) for x in ("reward", "log_likelihood"))
        return self.calculate_loss(td, batch, out, reward, log_p)


def modules(env: RL4COEnvBase, k: int) -> dict[str, RL4COLitModule]:
    """What is compared, each with a policy of its own."""

    def policy() -> AttentionModelPolicy:
        torch.manual_seed(0)
        return AttentionModelPolicy(env_name=env.name)

    reinforce = Reinforce(env, policy(), baseline="shared")
    reinforce.k = k
    return {
        "rl4co REINFORCE": reinforce,
        "rl4co POMO": POMO(env, policy(), num_starts=k),
        "rloo": PolicyGradient(env, policy(), estimator="rloo", k=k),
        "unordered_set": PolicyGradient(env, policy(), estimator="unordered_set", k=k),
    }


def training_step(module: RL4COLitModule, batch: TensorDict) -> Callable[[], None]:
    """A step of the optimizer, as a trainer runs it."""
    module.log_metrics = lambda *_, **__: {}  # which needs a trainer
    optimizer = torch.optim.Adam(module.policy.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        module.shared_step(batch.clone(), 0, "train")["loss"].backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--k", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--seconds", type=float, default=40.0, help="of every row")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows: list[dict[str, object]] = []
    for name in ("tsp", "cvrp"):
        env = get_env(name, generator_params={"num_loc": given.nodes})
        batch = env.generator([given.batch])
        for k in given.k:
            steps = {who: training_step(m, batch) for who, m in modules(env, k).items()}
            took = timings(steps, seconds=given.seconds)
            first = took["rl4co REINFORCE"].median
            row: dict[str, object] = {"problem": name, "k": k, "rl4co REINFORCE ms": first * 1e3}
            rows.append(row | {f"{who} / it": took[who].median / first for who in list(took)[1:]})
    title = f"Training step of rl4co's attention model, {given.nodes} nodes, batch {given.batch}"
    report(title, rows, "rl4co")


if __name__ == "__main__":
    main()
