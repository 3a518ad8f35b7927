"""Completions in groups, one group per prompt: their advantages, their prompts, their ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from swor.math._best_of.weights import best_of_weights
from swor.rules.unordered_set import unordered_set
from swor.types import Sample


def weighted(sample: Sample, advantages: Tensor) -> Tensor:
    r"""$k w_s (r_s - b_s)$ from the advantages $a_s = r_s - \frac{1}{k-1} \sum_{s' \ne s} r_{s'}$.

    The loss of TRL is a mean over completions, hence the factor $k$. The baseline moves along with
    the rewards of a group, so it is enough to know how far each is from their mean, $a_s (k - 1) / k$.

    Args:
        sample: the completions of every group.
        advantages: of RLOO, (batch · k,); scaled and shifted ones give scaled ones.
    """
    k = sample.k
    if k == 1:
        return advantages
    from_mean = advantages.view(-1, k).to(sample.log_p.dtype) * ((k - 1) / k)
    weights = unordered_set(sample)
    advantage = k * weights.weight * (from_mean - weights.baseline(from_mean))
    return advantage.flatten().to(advantages.dtype)


def best_of_weighted(sample: Sample, advantages: Tensor, reward: Tensor, m: int) -> Tensor:
    r"""$k c_s$ of the best of m rewards, plus $k w_s (g_s - b_s)$ of the rest of the advantages.

    The rest is $g_s = -\beta \log(p_s / p_{\text{ref}, s})$, the KL penalty of TRL, which is a mean over
    completions whatever the rewards are.

    Args:
        sample: the completions of every group, $k \ge m$ for each.
        advantages: of RLOO, (batch · k,), not scaled.
        reward: without the penalty, (batch, k).
        m: the number of completions of which the best one counts.
    """
    k = sample.k
    if k == 1:
        return advantages
    others = (reward.sum(-1, keepdim=True) - reward) / (k - 1)
    penalty = weighted(sample, advantages - (reward - others).flatten().to(advantages.dtype))
    found = best_of_weights(sample.log_p, sample.log_rest, reward, m)
    return k * found.coefficient.flatten().to(advantages.dtype) + penalty


def one_of_each(prompts: Sequence[list[int]], k: int) -> list[list[int]]:
    """Return one prompt of each group of k equal ones.

    >>> one_of_each([[1, 2], [1, 2], [3], [3]], 2)
    [[1, 2], [3]]
    """
    groups = [prompts[i : i + k] for i in range(0, len(prompts), k)]
    if any(len(group) < k or any(prompt != group[0] for prompt in group) for group in groups):
        raise ValueError(
            f"the {len(prompts)} prompts of this process are not groups of {k} equal ones; expected "
            "all completions of a prompt on one process. Make per_device_train_batch_size · "
            "steps_per_generation (and per_device_eval_batch_size) a multiple of num_generations."
        )
    return [group[0] for group in groups]


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
