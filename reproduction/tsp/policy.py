r"""A distribution over the tours of some instances: the decoder as a search sees it.

In step $t$, $\log p(\pi_t \mid \pi_{<t}) = \log\operatorname{softmax}(C \tanh u_t)$ over the nodes that
are not yet visited, where $u_t$ reads the glimpse of all heads,

$$u_{ti} = \sum_{hj} a_{hj} V_{hji}, \qquad
a_{h\cdot} = \operatorname{softmax}(F_{\pi_1 h \cdot} + L_{\pi_{t-1} h \cdot}).$$

The tables $F$, $L$ and $V$ belong to the instance and are shared by all beams (see
:class:`reproduction.tsp.model.Decoder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class PartialTours(NamedTuple):
    """Where every beam started, where it is, and what it may no longer visit."""

    first: Tensor  # (batch, beams)
    last: Tensor  # (batch, beams)
    closed: Tensor  # (batch, beams, nodes), −inf for visited nodes, 0 for the others


@dataclass(frozen=True)
class TourPolicy:
    """The distribution over the tours of a batch of instances, a :class:`swor.SequenceModel`.

    Scores of the nodes by the first and by the last node of the tour have a last row for empty tours.
    """

    first: Tensor  # (batch, nodes + 1, heads · nodes)
    last: Tensor  # (batch, nodes + 1, heads · nodes)
    readout: Tensor  # logits by the attention of every head, (batch, heads · nodes, nodes)
    clip: float  # logits lie between −clip and clip
    end = None

    @property
    def length(self) -> int:
        """The number of nodes: a tour visits each once."""
        return self.readout.shape[-1]

    def start(self) -> PartialTours:
        """Return one empty tour per instance."""
        batch, rows, _ = self.first.shape
        nowhere = torch.full((batch, 1), rows - 1, device=self.first.device)
        return PartialTours(nowhere, nowhere, self.first.new_zeros(batch, 1, self.length))

    def step(self, state: PartialTours) -> tuple[Tensor, PartialTours]:
        """Return log-probabilities of the next node, (batch, beams, nodes)."""
        return self.log_probs(state.first, state.last, state.closed), state

    def select(self, state: PartialTours, parents: Tensor, symbols: Tensor) -> PartialTours:
        """Append a node to the tours of the beams ``parents``."""
        nodes = symbols.unsqueeze(-1)
        closed = take_rows(state.closed, parents).scatter(-1, nodes, -torch.inf)
        empty = state.first[..., :1] == self.length
        first = torch.where(empty, symbols, state.first.gather(-1, parents))
        return PartialTours(first, symbols, closed)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log-probabilities of tours (batch, k, nodes), all steps at once, with gradient."""
        batch, k, n = value.shape
        expected = (self.first.shape[0], k, self.length)
        if value.shape != expected:
            raise ValueError(
                f"value has shape {tuple(value.shape)}; expected {expected}, tours of the instances."
            )
        nodes = torch.arange(n, device=value.device)
        steps = nodes[:-1]  # the last node is the only one left
        first = torch.where(steps == 0, n, value[..., :1])
        last = torch.where(steps == 0, n, value.roll(1, -1)[..., :-1])
        visited_at = torch.empty_like(value).scatter_(-1, value, nodes.expand_as(value))
        closed = visited_at.unsqueeze(-2) < steps.unsqueeze(-1)
        closed = torch.where(closed, -torch.inf, 0.0).to(self.first.dtype)
        log_probs = self.log_probs(first.flatten(1), last.flatten(1), closed.flatten(1, 2))
        chosen = log_probs.gather(-1, value[..., :-1].reshape(batch, -1, 1))
        return chosen.view(batch, k, n - 1).sum(-1)

    def log_probs(self, first: Tensor, last: Tensor, closed: Tensor) -> Tensor:
        """Return log-probabilities of the next node, (batch, tours, nodes), as in :class:`PartialTours`."""
        scores = take_rows(self.first, first) + take_rows(self.last, last)
        by_head = scores.unflatten(-1, (-1, self.length)) + closed.unsqueeze(-2)
        attention = by_head.softmax(-1).flatten(-2)
        logits = self.clip * torch.tanh(attention @ self.readout)
        return torch.log_softmax(logits + closed, -1)


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Take rows of each element of the batch, from (batch, rows, width) to (batch, *index, width)."""
    batch, rows, width = table.shape
    offset = rows * torch.arange(batch, device=index.device).unsqueeze(-1)
    chosen = table.reshape(-1, width).index_select(0, (index + offset).flatten())
    return chosen.view(*index.shape, width)
