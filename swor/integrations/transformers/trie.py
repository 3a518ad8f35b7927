"""A tree of prefixes as sorted edges, in which many sequences are followed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Trie(NamedTuple):
    """Nodes are numbered, the root is 0; edges are sorted by their parent and their token."""

    key: Tensor  # (edges,), parent · width + token
    token: Tensor  # (edges,)
    child: Tensor  # (edges,)
    first: Tensor  # (nodes + 1,), the first edge of every node
    item: Tensor  # (nodes,), the sequence that ends there, −1 if none does
    width: int  # more than the largest token

    def to(self, device: torch.device) -> Trie:
        """The same on a device."""
        tensors = (self.key, self.token, self.child, self.first, self.item)
        key, token, child, first, item = (x.to(device) for x in tensors)
        return Trie(key, token, child, first, item, self.width)

    def walk(self, tokens: Tensor) -> Tensor:
        """The node that tokens (rows, t) lead to, (rows,); −1 if no sequence begins with them."""
        node = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        for column in tokens.unbind(-1):
            node = self.step(node, column)
        return node

    def step(self, node: Tensor, token: Tensor) -> Tensor:
        """The child of every node by its token, −1 if there is none."""
        wanted = node * self.width + token
        edge = torch.searchsorted(self.key, wanted).clamp(max=len(self.key) - 1)
        exists = (node >= 0) & (token < self.width) & (self.key[edge] == wanted)
        return torch.where(exists, self.child[edge], -1)

    def children(self, node: Tensor, symbols: int) -> Tensor:
        """Which tokens lead from nodes (rows,) to another, (rows, symbols)."""
        known = node.clamp(min=0)
        count = torch.where(node < 0, 0, self.first[known + 1] - self.first[known])
        row = torch.arange(len(node), device=node.device).repeat_interleave(count)
        before = (count.cumsum(0) - count)[row]  # edges of the rows above
        edge = self.first[known][row] + torch.arange(len(row), device=node.device) - before
        mask = torch.zeros(len(node), symbols, dtype=torch.bool, device=node.device)
        mask[row, self.token[edge]] = True
        return mask

    def item_at(self, node: Tensor) -> Tensor:
        """The sequence that ends at each node, −1 if none does, or if there is no node."""
        return torch.where(node < 0, -1, self.item[node.clamp(min=0)])


def make_trie(sequences: Sequence[tuple[int, ...]]) -> Trie:
    """The tree of the prefixes of token sequences."""
    nodes: dict[tuple[int, ...], int] = {(): 0}
    for sequence in sequences:
        for t in range(1, len(sequence) + 1):
            nodes.setdefault(sequence[:t], len(nodes))
    edges = sorted((nodes[path[:-1]], path[-1], node) for path, node in nodes.items() if path)
    parent, token, child = torch.tensor(edges).unbind(-1)
    width = int(token.max()) + 1
    item = torch.full((len(nodes),), -1)
    item[torch.tensor([nodes[sequence] for sequence in sequences])] = torch.arange(len(sequences))
    first = torch.searchsorted(parent.contiguous(), torch.arange(len(nodes) + 1))
    return Trie(parent * width + token, token, child, first, item, width)
