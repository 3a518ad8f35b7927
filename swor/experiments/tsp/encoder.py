"""The encoder of the Attention Model: what every node knows of the others."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from swor.experiments.tsp.settings import ModelSettings


class Encoder(nn.Module):
    r"""$h^{(0)} = W x + b$, then layers of attention: embeddings of the nodes of an instance.

    Args:
        settings: the sizes.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.embed = nn.Linear(2, settings.width)
        self.layers = nn.Sequential(*(EncoderLayer(settings) for _ in range(settings.layers)))

    def forward(self, instances: Tensor) -> Tensor:
        """From (batch, nodes, 2) to (batch, nodes, width)."""
        h: Tensor = self.layers(self.embed(instances))
        return h


class EncoderLayer(nn.Module):
    r"""$\hat h = \text{BN}(h + \text{MHA}(h))$, then $\text{BN}(\hat h + \text{FF}(\hat h))$."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, hidden = settings.width, settings.hidden
        self.heads = settings.heads
        self.project_in = nn.Linear(width, 3 * width, bias=False)
        self.project_out = nn.Linear(width, width, bias=False)
        self.norm_attention = nn.BatchNorm1d(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )
        self.norm_feed_forward = nn.BatchNorm1d(width)

    def forward(self, h: Tensor) -> Tensor:
        """From (batch, nodes, width) to the same."""
        h = over_batch_and_nodes(self.norm_attention, h + self.attend(h))
        return over_batch_and_nodes(self.norm_feed_forward, h + self.feed_forward(h))

    def attend(self, h: Tensor) -> Tensor:
        """Attention of all nodes to all nodes with several heads."""
        split = self.project_in(h).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)  # (3, batch, heads, nodes, width / heads)
        heads = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.project_out(heads.transpose(1, 2).flatten(-2))
        return out


def over_batch_and_nodes(norm: nn.BatchNorm1d, h: Tensor) -> Tensor:
    """Batch normalisation in which every node of every instance counts alike."""
    out: Tensor = norm(h.flatten(0, 1))
    return out.view_as(h)
