"""Completions in groups, one group per prompt: their advantages, their prompts, their ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from swor.integrations.trl._rewards import Goal
from swor.rules.advantages import advantages
from swor.rules.unordered_set import unordered_set
from swor.types import Sample


def group_advantages(sample: Sample, reward: Tensor, penalty: Tensor, goal: Goal) -> Tensor:
    r"""$A_s$ of the objective of the rewards, minus the mean of the penalty, (batch, k).

    The penalty is $\beta \log(p_s / p_{\text{ref}, s})$, the KL divergence of TRL, which is a mean over
    completions whatever the objective is. A group whose rewards are NaN is left out: its advantages are 0.

    Args:
        sample: the completions of every group.
        reward: without the penalty, (batch, k).
        penalty: (batch, k), of the completions.
        goal: the objective.
    """
    if sample.k == 1:  # an evaluation: TRL has no advantages either
        return torch.zeros_like(sample.log_p)
    scored = ~reward.isnan().all(-1, keepdim=True)
    reward = torch.where(scored, goal.clip(reward), 0.0)
    log_p, rest = sample.log_p, sample.log_rest
    total = advantages(log_p, reward, log_rest=rest, objective=goal.name, m=goal.m)
    of_penalty = advantages(log_p, penalty, log_rest=rest)
    return torch.where(scored, total - of_penalty, 0.0)


def advantage_moments(sample: Sample, reward: Tensor) -> Tensor:
    r"""$n$, $\sum w_s$, $\sum w_s a_s$ and $\sum w_s a_s^2$ of the groups with rewards, (4,).

    Here $a_s = r_s - b_s$, the advantage of a completion.
    """
    scored = ~reward.isnan().all(-1, keepdim=True)
    weights = unordered_set(sample)
    reward = torch.where(scored & (sample.log_p > -torch.inf), reward, 0.0)
    above = reward - weights.baseline(reward)
    weight = weights.weight * scored
    number = scored.sum() * sample.k
    return torch.stack(
        [number, weight.sum(), (weight * above).sum(), (weight * above.square()).sum()]
    )


def deviation(moments: Tensor) -> Tensor:
    """Return the standard deviation of advantages, as TRL has it (n − 1), from their moments."""
    number, mass, first, second = moments.unbind()
    # If no group of the step has rewards, all moments are 0, and so is the deviation.
    mass, number = mass.clamp(min=torch.finfo(mass.dtype).tiny), number.clamp(min=2)
    return ((second / mass - (first / mass).square()) * number / (number - 1)).clamp(min=0.0).sqrt()


def one_of_each(prompts: Sequence[list[int]], k: int) -> list[list[int]]:
    """Return one prompt of each group of k equal ones.

    >>> one_of_each([[1, 2], [1, 2], [3], [3]], 2)
    [[1, 2], [3]]
    """
    groups = [prompts[i : i + k] for i in range(0, len(prompts), k)]
    if any(len(group) < k or any(prompt != group[0] for prompt in group) for group in groups):
        raise ValueError(
            f"the {len(prompts)} prompts of this process are not groups of {k} equal ones; expected "
            "all completions of a prompt on one process. Leave the order of the prompts to the trainer."
        )
    return [group[0] for group in groups]


def check_sizes(train: int, k: int, evaluation: int | None, k_eval: int) -> None:
    """Check that all completions of a prompt are on one process, and in one batch."""
    names = {
        "per_device_train_batch_size · steps_per_generation": (train, "num_generations", k),
        "per_device_eval_batch_size": (evaluation, "num_generations_eval", k_eval),
    }
    for name, (size, of, count) in names.items():
        if size is not None and size % count:
            raise ValueError(
                f"{name} is {size} and {of} {count}; expected a multiple of {count}, since all completions "
                f"of a prompt are drawn together, on one process. Make it {-(-size // count) * count}."
            )


def filled(sample: Sample) -> Tensor:
    """Return the completions (batch, k, n), with the first of a group in places that have none.

    A prompt may have fewer than k completions. The places that are left over have weight 0, and reward
    functions still get a real completion to look at.
    """
    return torch.where((sample.log_p > -torch.inf).unsqueeze(-1), sample.value, sample.value[:, :1])


def cut(completions: Sequence[list[int]], ends: Sequence[int]) -> list[list[int]]:
    """Return completions up to their first end token, which is included.

    >>> cut([[5, 0, 9], [5, 6, 7]], [0])
    [[5, 0], [5, 6, 7]]
    """
    stops = [next((t for t, x in enumerate(c) if x in ends), len(c)) for c in completions]
    return [c[: stop + 1] for c, stop in zip(completions, stops, strict=True)]


def padded(prompts: Sequence[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Return prompts (batch, tokens), padded on the left, and their attention mask.

    >>> padded([[5, 6], [7]], 0)
    (tensor([[5, 6],
            [0, 7]]), tensor([[1, 1],
            [0, 1]]))
    """
    ids = [torch.tensor(prompt) for prompt in prompts]
    mask = [torch.ones_like(x) for x in ids]
    return (
        pad_sequence(ids, True, pad, padding_side="left"),
        pad_sequence(mask, True, 0, padding_side="left"),
    )
