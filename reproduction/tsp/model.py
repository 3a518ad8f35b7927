r"""The Attention Model (Kool, van Hoof and Welling 2019): an encoder and a decoder.

The encoder embeds every node of an instance. Step $t$ of the decoder has the query
$q = W_G \bar h + W_F h_{\pi_1} + W_L h_{\pi_{t-1}}$, where a learned placeholder stands for the two
nodes while the tour is empty. It attends with every head $h$ to the nodes not yet visited, and scores
them by the glimpse $g$,

$$a_{hj} = \operatorname{softmax}_j\bigl(q_h^\top k_{jh} / \sqrt{d_h}\bigr), \quad
g_h = \textstyle\sum_j a_{hj} v_{jh}, \quad u_i = (W_O g)^\top k'_i / \sqrt d.$$

Only the softmax is not linear. So the products of every possible query with the keys, and of the
values with the final keys, are computed once per instance, in tables that all beams share. A step is
then a lookup, a softmax and one product: always fewer operations, and for up to some 30 nodes also
less arithmetic.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reproduction.harness.errors import UserError
from reproduction.harness.models import kept_settings, load_model
from reproduction.tsp.policy import TourPolicy
from reproduction.tsp.problem import check_instances
from reproduction.tsp.settings import ModelSettings


class AttentionModel(nn.Module):
    """From instances to a distribution over their tours, a :class:`swor.SequenceModel`.

    The encoder runs once per instance, whatever the number of samples.

    >>> import swor, torch
    >>> model = AttentionModel(ModelSettings(width=16, heads=2, layers=1, hidden=8))
    >>> policy = model(torch.rand(3, 5, 2))  # 3 instances of 5 nodes
    >>> swor.stochastic_beam_search(policy, 4).value.shape
    torch.Size([3, 4, 5])
    """

    def __init__(self, settings: ModelSettings | None = None) -> None:
        super().__init__()
        self.settings = ModelSettings() if settings is None else settings
        self.encoder = Encoder(self.settings)
        self.decoder = Decoder(self.settings)

    def forward(self, instances: Tensor) -> TourPolicy:
        """From instances, (batch, nodes, 2), to the policy."""
        check_instances(instances)
        policy: TourPolicy = self.decoder(self.encoder(instances))
        return policy


class Encoder(nn.Module):
    r"""$h^{(0)} = W x + b$, then layers of attention: embeddings of the nodes of an instance."""

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
    """Normalise over all nodes of all instances."""
    out: Tensor = norm(h.flatten(0, 1))
    return out.view_as(h)


class Decoder(nn.Module):
    """From embeddings of the nodes to a distribution over tours."""

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


def load_attention_model(path: Path) -> AttentionModel:
    """Read the ``model.safetensors`` of a run, and return the model in evaluation mode."""
    sizes = kept_settings(path, ModelSettings)
    fewest = sizes.layers * sizes.width * (sizes.width + sizes.hidden)  # of its weights
    if 4 * fewest > path.stat().st_size:
        raise UserError(
            f"{path} says that it holds a model of {sizes}, for which it is too small; expected a model "
            "that training kept. Restore the file from a copy, or train again."
        )
    model = AttentionModel(sizes)
    load_model(path, model)
    return model.eval()
