"""Solutions of instances by a policy of rl4co: distinct, independent, or the most probable."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from swor.integrations.rl4co.model import SolutionModel
from swor.samplers.sequences import ancestral_sample, beam_search, stochastic_beam_search
from swor.types import Sample

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict


class Solutions(NamedTuple):
    """k solutions of every instance.

    Attributes:
        sample: its ``value`` has the actions, (batch, k, steps); after the end of a solution, they are
            actions that rl4co accepts.
        reward: (batch, k)
    """

    sample: Sample
    reward: Tensor


def sample_solutions(
    policy: ConstructivePolicy,
    env: RL4COEnvBase,
    td: TensorDict,
    k: int,
    *,
    start: int | Tensor | None = None,
    max_steps: int | None = None,
    generator: torch.Generator | None = None,
) -> Solutions:
    r"""Draw $k$ different solutions of every instance, a sample without replacement from the policy.

    This is a stochastic beam search (:func:`swor.stochastic_beam_search`): the encoder runs once, the
    decoder once per step on $k$ beams, with gradient if gradients are enabled. Use it for
    :func:`swor.unordered_set` and the other rules for distinct samples. The first $j$ of the $k$ solutions
    are a sample without replacement of size $j$.

    Args:
        policy: any constructive policy of rl4co; its temperature, clipping and masking apply.
        env: the environment.
        td: instances, as ``env.reset`` returns them, (batch,).
        k: the number of solutions per instance.
        start: the first action of all solutions, a number or (batch,); None lets the policy choose.
            Rotations of a tour are different solutions, unless the start is given.
        max_steps: the largest number of actions of a solution; None for four times the largest
            dimension of an instance, which is more than rl4co's environments take.
        generator: the source of randomness.

    >>> from rl4co.envs import TSPEnv
    >>> from rl4co.models import AttentionModelPolicy
    >>> env = TSPEnv(generator_params={"num_loc": 5})
    >>> policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2).eval()
    >>> found = sample_solutions(policy, env, env.reset(batch_size=[3]), 4)
    >>> found.sample.value.shape, found.reward.shape
    (torch.Size([3, 4, 5]), torch.Size([3, 4]))
    """
    model = SolutionModel(policy, env, td, start=start, max_steps=max_steps)
    return _solutions(model, stochastic_beam_search(model, k, generator=generator))


def ancestral_solutions(
    policy: ConstructivePolicy,
    env: RL4COEnvBase,
    td: TensorDict,
    k: int,
    *,
    start: int | Tensor | None = None,
    max_steps: int | None = None,
    generator: torch.Generator | None = None,
) -> Solutions:
    """Draw k independent solutions of every instance, with :func:`swor.ancestral_sample`.

    Use it for :func:`swor.rloo` and the other rules of samples with replacement. The arguments and the
    result are those of :func:`sample_solutions`.
    """
    model = SolutionModel(policy, env, td, start=start, max_steps=max_steps)
    return _solutions(model, ancestral_sample(model, k, generator=generator))


def beam_solutions(
    policy: ConstructivePolicy,
    env: RL4COEnvBase,
    td: TensorDict,
    k: int,
    *,
    start: int | Tensor | None = None,
    max_steps: int | None = None,
) -> Solutions:
    """Find k probable solutions of every instance by a beam search, the most probable first.

    The arguments and the result are those of :func:`sample_solutions`, without a generator, since the
    search is deterministic; k = 1 is greedy decoding. Unlike rl4co's beam search, it chooses the first
    action as it chooses the others, unless the start is given.
    """
    model = SolutionModel(policy, env, td, start=start, max_steps=max_steps)
    return _solutions(model, beam_search(model, k))


def _solutions(model: SolutionModel, sample: Sample) -> Solutions:
    state = model.after(sample.value)
    return Solutions(replace(sample, value=state.actions), model.reward(state))
