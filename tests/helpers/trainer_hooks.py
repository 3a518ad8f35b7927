"""Stand-ins of the hooks of frameworks that are not installed, with the signatures that were read."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any


def modules(**contents: dict[str, Any]) -> dict[str, ModuleType]:
    """Modules by their names, ``__`` for a dot, with the packages around them."""
    made: dict[str, ModuleType] = {}
    for path, names in contents.items():
        parts = path.split("__")
        for n in range(1, len(parts) + 1):
            name = ".".join(parts[:n])
            made.setdefault(name, ModuleType(name))
        vars(made[".".join(parts)]).update(names)
    return made


def registry() -> tuple[dict[str, Any], Callable[[str], Callable[[Any], Any]]]:
    """A dictionary, and a decorator that fills it."""
    known: dict[str, Any] = {}

    def register(name: str) -> Callable[[Any], Any]:
        def decorator(function: Any) -> Any:
            known[name] = function
            return function

        return decorator

    return known, register


def verl() -> dict[str, ModuleType]:
    """verl 0.9.1: ``compute_advantage`` gives the batch to the estimator of one name alone."""
    known, register = registry()

    def compute_advantage(data: Any, adv_estimator: str, config: Any = None) -> Any:
        given = {
            "token_level_rewards": data.batch["token_level_rewards"],
            "response_mask": data.batch["response_mask"],
            "config": config,
            "index": data.non_tensor_batch["uid"],
        }
        if adv_estimator == "gdpo":
            given |= {"non_tensor_batch": data.non_tensor_batch, "batch": data.batch}
        data.batch["advantages"], data.batch["returns"] = known[adv_estimator](**given)
        return data

    core = {"ADV_ESTIMATOR_REGISTRY": known, "register_adv_est": register}
    trainer = {"compute_advantage": compute_advantage}
    return modules(verl__trainer__ppo__core_algos=core, verl__trainer__ppo__ray_trainer=trainer)


def skyrl() -> dict[str, ModuleType]:
    """skyrl 0.3.0: the trainer passes rewards, masks, prompts and a critic's values to an estimator."""
    known, register = registry()

    class RayPPOTrainer:
        def compute_advantages_and_returns(self, data: Any) -> Any:
            data["advantages"], data["returns"] = known["unordered_set"](
                token_level_rewards=data["rewards"],
                response_mask=data["response_mask"],
                index=data.metadata["uids"],
                values=data["values"],
                grpo_norm_by_std=True,
                gamma=1.0,
                lambd=1.0,
                config=None,
            )
            return data

    hooks = {"register_advantage_estimator": register}
    return modules(
        skyrl__backends__skyrl_train__utils__ppo_utils=hooks,
        skyrl__train__trainer={"RayPPOTrainer": RayPPOTrainer},
    )


def rllm() -> dict[str, ModuleType]:
    """rllm 0.3.0 with the name of PR 742."""
    known, register = registry()
    return modules(rllm={"register_adv_estimator": register, "known": known})


def prime_rl() -> dict[str, ModuleType]:
    """prime-rl 0.8.0: an algorithm assigns advantages to the traces of a group."""

    def trainable(episodes: list[Any]) -> Any:
        return ((episode, trace) for episode in episodes for trace in episode.traces)

    def assign(trace: Any, values: float) -> None:
        for node in trace.nodes:
            if any(node.mask):
                node.advantages = [values] * sum(node.mask)

    class Algorithm:
        action_loss_type = "rl"

    class BaseAlgoConfig:
        action_loss_type = "rl"

    hooks = {"ALGORITHM_CLASSES": {}, "Algorithm": Algorithm, "assign_advantages": assign}
    base = {"iter_trainable_traces": trainable}
    return modules(
        prime_rl__orchestrator__algo=hooks,
        prime_rl__orchestrator__algo__base=base,
        prime_rl__configs__algorithm={"BaseAlgoConfig": BaseAlgoConfig},
    )


def node(logprobs: list[float], *, sampled: bool) -> SimpleNamespace:
    """A message of verifiers 0.4.0, which has log-probabilities of its sampled tokens alone."""
    mask = [False, *[sampled] * len(logprobs)]  # a token of the template comes first
    return SimpleNamespace(mask=mask, logprobs=logprobs if sampled else [], advantages=None)
