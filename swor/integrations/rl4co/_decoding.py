"""The log-probabilities of the next action, by the decoder of a policy of rl4co.

rl4co keeps the solutions of a batch of instances in rows, all instances of a beam after another: row
``beam · batch + instance`` of a TensorDict belongs to that beam of that instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from swor.integrations.rl4co._checks import check_policy

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import ConstructivePolicy
    from tensordict import TensorDict


def to_rows(x: Tensor) -> Tensor:
    """Convert (batch, beams, ...) to (beams · batch, ...).

    >>> to_rows(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    tensor([1, 4, 2, 5, 3, 6])
    """
    return x.transpose(0, 1).flatten(0, 1)


def from_rows(x: Tensor, batch: int) -> Tensor:
    """Convert (beams · batch, ...) to (batch, beams, ...).

    >>> from_rows(torch.tensor([1, 4, 2, 5, 3, 6]), batch=2)
    tensor([[1, 2, 3],
            [4, 5, 6]])
    """
    return x.reshape(-1, batch, *x.shape[1:]).transpose(0, 1)


def rows_of(beams: Tensor) -> Tensor:
    """Return the rows of some beams of every instance, from (batch, beams) to (beams · batch,).

    >>> rows_of(torch.tensor([[0, 2], [1, 1]]))
    tensor([0, 3, 4, 3])
    """
    batch = beams.shape[0]
    instances = torch.arange(batch, device=beams.device).unsqueeze(-1)
    return to_rows(beams * batch + instances)


# rl4co decodes one solution per instance of these: for more, every solution has an encoding of its own.
ONE_SOLUTION = frozenset({"flp", "mcp", "mtsp"})


class Decoder:
    """The decoder of a policy on instances (batch,), which are encoded once."""

    def __init__(self, policy: ConstructivePolicy, env: RL4COEnvBase, td: TensorDict) -> None:
        check_policy(policy)
        self.policy, self.env, self.td = policy, env, td
        self.encoded = policy.encoder(td)[0]
        weights = next(policy.parameters(), torch.empty(0))
        self.dtype = torch.promote_types(weights.dtype, torch.float32)
        self._prepared: dict[int, Any] = {}

    def __call__(self, td: TensorDict, complete: Tensor) -> Tensor:
        """Return the log-probabilities of the next action, (batch, beams, actions).

        Those of solutions that are ``complete``, (batch, beams), have no meaning.
        """
        batch, beams = complete.shape
        if bool(complete.any()):
            td = _without_empty_masks(td, to_rows(complete))
        starts = beams if beams > 1 else 0
        hidden = self._prepare(0 if _prepares_instances_only(self.policy.decoder) else starts)
        if starts and self.env.name in ONE_SOLUTION:
            hidden, starts = hidden.batchify(starts), 0
        logits, mask = self.policy.decoder(td, hidden, starts)
        return from_rows(self._normalized(logits, mask), batch)

    def _prepare(self, starts: int) -> Any:
        """Return the cache of the decoder before the first step, for a number of solutions per instance."""
        if starts not in self._prepared:
            *_, hidden = self.policy.decoder.pre_decoder_hook(
                self.td, self.env, self.encoded, starts
            )
            self._prepared[starts] = hidden
        return self._prepared[starts]

    def _normalized(self, logits: Tensor, mask: Tensor) -> Tensor:
        policy = self.policy
        logits = logits.to(self.dtype)
        if policy.tanh_clipping > 0:
            logits = policy.tanh_clipping * torch.tanh(logits)
        if policy.mask_logits:
            logits = logits.masked_fill(~mask, -torch.inf)
        return torch.log_softmax(logits / policy.temperature, dim=-1)


def _prepares_instances_only(decoder: Any) -> bool:
    """Return whether a decoder prepares the same for any number of solutions, as all of rl4co's own do."""
    from rl4co.models import ConstructiveDecoder
    from rl4co.models.zoo.am.decoder import AttentionModelDecoder

    hooks = (ConstructiveDecoder.pre_decoder_hook, AttentionModelDecoder.pre_decoder_hook)
    return type(decoder).pre_decoder_hook in hooks


def _without_empty_masks(td: TensorDict, complete: Tensor) -> TensorDict:
    """Allow every action to complete solutions that have none: attention to nothing would be NaN."""
    mask = td["action_mask"]
    empty = complete & ~mask.any(-1)
    return td.copy().set("action_mask", mask | empty.unsqueeze(-1))
