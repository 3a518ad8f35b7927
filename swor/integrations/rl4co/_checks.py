"""Checks of policies, environments and instances of rl4co, and of its version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict

TESTED = "0.7"


def check_version() -> None:
    """Check that rl4co has the tested version, because the integration steps through its decoders."""
    try:
        installed = version("rl4co")
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(
            "swor.integrations.rl4co needs the package 'rl4co', which is not installed. Install it "
            f"with: pip install 'rl4co~={TESTED}.0'",
            name="rl4co",
        ) from error
    if installed.split(".")[:2] != TESTED.split("."):
        raise ImportError(
            f"rl4co {installed} is installed; expected {TESTED}, the version that "
            f"swor.integrations.rl4co is tested with. Install it with: pip install 'rl4co~={TESTED}.0'"
        )


def check_policy(policy: ConstructivePolicy) -> None:
    """Check that a policy extends solutions action by action, by the distribution of its decoder."""
    from rl4co.models import ConstructiveDecoder, ConstructivePolicy
    from rl4co.models.zoo.polynet.decoder import PolyNetDecoder

    name = type(policy).__name__
    if not isinstance(policy, ConstructivePolicy):
        raise TypeError(
            f"policy is a {name}; expected a ConstructivePolicy of rl4co, which extends a solution by "
            "one action at a time. Use for instance rl4co.models.AttentionModelPolicy."
        )
    if not isinstance(policy.decoder, ConstructiveDecoder):
        raise TypeError(
            f"the decoder of the {name} is a {type(policy.decoder).__name__}; expected a "
            "ConstructiveDecoder of rl4co, which gives the logits of the next action. Use a policy "
            "that has one, for instance rl4co.models.AttentionModelPolicy."
        )
    if isinstance(policy.decoder, PolyNetDecoder):
        raise TypeError(
            f"the decoder of the {name} has another distribution for every solution of an instance; "
            "expected one distribution that all solutions are drawn from. Use for instance "
            "rl4co.models.AttentionModelPolicy."
        )


def check_env(env: RL4COEnvBase) -> None:
    """Check that an environment builds a solution from nothing, action by action."""
    from rl4co.envs import RL4COEnvBase
    from rl4co.envs.common.base import ImprovementEnvBase

    if isinstance(env, RL4COEnvBase) and not isinstance(env, ImprovementEnvBase):
        return
    raise TypeError(
        f"env is a {type(env).__name__}; expected a sequential environment of rl4co, in which a "
        "solution is built from nothing by one action after the other. Use for instance "
        "rl4co.envs.TSPEnv or CVRPEnv; environments that improve a given solution have no "
        "distribution over solutions."
    )


def check_instances(td: TensorDict) -> None:
    """Check that the instances are those of an environment that was reset."""
    if "action_mask" not in td.keys():  # noqa: SIM118  a TensorDict is no dictionary
        raise ValueError(
            f"td has the entries {sorted(td.keys())} and no 'action_mask'; expected instances of an "
            "environment that was reset. Give env.reset(td)."
        )
    if len(td.batch_size) != 1:
        raise ValueError(
            f"td has the batch size {tuple(td.batch_size)}; expected one axis, (batch,). Reshape it, "
            "for instance with td.flatten()."
        )


def first_actions(start: int | Tensor, mask: Tensor) -> Tensor:
    """Return the first action of all solutions, (batch,), which the mask (batch, actions) has to allow."""
    first = torch.as_tensor(start, device=mask.device).expand(len(mask))
    actions = torch.arange(mask.shape[-1], device=mask.device)
    allowed = (mask & (actions == first.unsqueeze(-1))).any(-1)
    if not bool(allowed.all()):
        i = int(allowed.logical_not().nonzero()[0])
        possible = mask[i].nonzero().flatten().tolist()
        raise ValueError(
            f"start is {int(first[i])} for instance {i}; expected an action that the environment "
            f"allows first, one of {possible}. Choose another, or None to let the policy choose."
        )
    return first
