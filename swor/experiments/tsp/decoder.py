r"""The decoder of the Attention Model, as tables that all beams of an instance share.

Decoding step $t$ asks with the query $q = W_G \bar h + W_F h_{\pi_1} + W_L h_{\pi_{t-1}}$ (a learned
placeholder stands for the two nodes while the tour is empty), attends with every head $h$ to the
nodes not yet visited, and scores them by the glimpse $g$,

$$a_{hj} = \operatorname{softmax}_j\bigl(q_h^\top k_{jh} / \sqrt{d_h}\bigr), \quad
g_h = \textstyle\sum_j a_{hj} v_{jh}, \quad u_i = (W_O g)^\top k'_i / \sqrt d.$$

Only the softmax is not linear. So the products of every possible query with the keys, and of the
values with the final keys, are found once per instance, and a step is left with a lookup, a softmax
and one product. For some 30 nodes or fewer that is also less arithmetic, and it always is fewer
operations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from swor.experiments.tsp.policy import TourPolicy
from swor.experiments.tsp.settings import ModelSettings


class Decoder(nn.Module):
    """From embeddings of the nodes to a distribution over tours.

    Args:
        settings: the sizes.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.width
        self.settings = settings
        self.project_nodes = nn.Linear(width, 3 * width, bias=False)  # keys, values, final keys
        self.project_graph = nn.Linear(width, width, bias=False)
        self.project_first = nn.Linear(width, width, bias=False)
        self.project_last = nn.Linear(width, width, bias=False)
        self.project_glimpse = nn.Linear(width, width, bias=False)
        self.placeholder = nn.Parameter(torch.empty(2, width).uniform_(-1, 1))

    def forward(self, h: Tensor) -> TourPolicy:
        """From (batch, nodes, width) to the tables of a policy."""
        keys, values, final_keys = self.project_nodes(h).chunk(3, -1)
        keys = self._heads(keys) / math.sqrt(keys.shape[-1] / self.settings.heads)
        graph = self.project_graph(h.mean(-2, keepdim=True))
        first = self.project_first(_append(h, self.placeholder[0]))
        last = self.project_last(_append(h, self.placeholder[1])) + graph
        final_keys = final_keys @ self.project_glimpse.weight / math.sqrt(h.shape[-1])
        return TourPolicy(
            first=self._scores(first, keys),
            last=self._scores(last, keys),
            readout=(self._heads(values) @ self._heads(final_keys).mT).flatten(1, 2),
            clip=self.settings.clip,
        )

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, heads, nodes, width / heads)."""
        heads: Tensor = x.unflatten(-1, (self.settings.heads, -1))
        return heads.transpose(1, 2)

    def _scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(batch, queries, heads · nodes)."""
        return (self._heads(queries) @ keys.mT).transpose(1, 2).flatten(-2)


def _append(h: Tensor, row: Tensor) -> Tensor:
    return torch.cat([h, row.expand(h.shape[0], 1, -1)], dim=1)
