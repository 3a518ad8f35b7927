"""A catalogue: a restriction of completions to given items, stored as a tree of prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from swor._checks import check_tensor
from swor.integrations.transformers._prompts import Tokens


class Catalogue:
    r"""Token sequences of which every completion is one, such as the products of a shop.

    The next token is drawn among those that lead to an item,

    $$p(x_t \mid x_{<t}) \propto \exp(\text{logit}(x_t)) \; [\text{an item begins with } x_{\le t}],$$

    and log-probabilities and gradients are of this distribution. To draw with a catalogue and score
    without it is a common mistake: the gradient is then biased. An item ends with the first token
    that ends completions, unless ``max_new_tokens`` cuts it off there.

    Args:
        items: the token ids of every item, without a token that ends it; all different.

    >>> catalogue = Catalogue([[5, 1], [5, 2], [7]])
    >>> catalogue.length  # of the longest item: enough for max_new_tokens
    2
    >>> catalogue.index(torch.tensor([[[5, 2], [7, 0]]]))
    tensor([[1, 2]])
    """

    def __init__(self, items: Sequence[Sequence[int]]) -> None:
        try:
            paths = [tuple(map(int, item)) for item in items]
        except (TypeError, ValueError):
            raise TypeError(
                "items are not lists of token ids; expected a list for every item, such as [[5, 1], [7]]. "
                "Tokenise them with tokenizer(items, add_special_tokens=False).input_ids."
            ) from None
        _check_items(paths)
        self.lengths = sorted({len(path) for path in paths})
        self.trie = make_trie(paths)

    @property
    def length(self) -> int:
        """The number of tokens of the longest item."""
        return self.lengths[-1]

    def allowed(self, tokens: Tensor, symbols: int, end: int | None) -> Tensor:
        """Return which tokens may follow ``tokens`` (rows, t), (rows, symbols); ``end`` after an item."""
        self.trie = self.trie.to(tokens.device)
        node = self.trie.walk(tokens)
        mask = self.trie.children(node, symbols)
        if end is not None:
            mask[:, end] = self.trie.item_at(node) >= 0
        return mask

    def index(self, value: Tensor) -> Tensor:
        """Return the longest item that each completion (*batch, n) begins with, (*batch,); −1 for none.

        Args:
            value: completions, as :func:`sample_completions` returns.
        """
        check_tensor("value", value, torch.long)
        self.trie = self.trie.to(value.device)
        node = torch.zeros(value.shape[:-1], dtype=torch.long, device=value.device)
        found = torch.full_like(node, -1)
        for column in value.unbind(-1):
            node = self.trie.step(node, column)
            item = self.trie.item_at(node)
            found = torch.where(item >= 0, item, found)
        return found

    def check(self, tokens: Tokens, symbols: int, max_new_tokens: int) -> None:
        """Check that every item is a completion of the model."""
        if self.trie.width > symbols:
            raise ValueError(
                f"an item has the token {self.trie.width - 1}, but the model has {symbols} tokens; "
                "expected items in the model's own tokens."
            )
        if max_new_tokens < self.length:
            raise ValueError(
                f"max_new_tokens is {max_new_tokens}, but the longest item of the catalogue has "
                f"{self.length} tokens. Give max_new_tokens=catalogue.length."
            )
        if not tokens.ends and self.lengths != [max_new_tokens]:
            raise ValueError(
                f"items have {self.lengths} tokens, and nothing ends a completion before it has "
                f"max_new_tokens={max_new_tokens}. Give eos_token_id, or items of this length."
            )
        for end in tokens.ends:
            if bool((self.trie.token == end).any()):
                raise ValueError(
                    f"an item has the token {end}, which ends completions; expected items without it: "
                    "it is added where an item ends."
                )


def _check_items(paths: list[tuple[int, ...]]) -> None:
    if not paths or not all(paths):
        raise ValueError(
            "the catalogue is empty or has an empty item; expected one or more items, each with one or "
            "more tokens."
        )
    if min(map(min, paths)) < 0:
        raise ValueError("an item has a negative token; expected token ids, from 0 on.")
    seen: dict[tuple[int, ...], int] = {}
    for number, path in enumerate(paths):
        if path in seen:
            raise ValueError(
                f"items {seen[path]} and {number} are both {list(path)}; expected different items. Leave "
                "one out, or give it tokens of its own."
            )
        seen[path] = number


class Trie(NamedTuple):
    """A tree of prefixes: nodes are numbered from the root, 0; edges are sorted by parent and token."""

    key: Tensor  # (edges,), parent · width + token
    token: Tensor  # (edges,)
    child: Tensor  # (edges,)
    first: Tensor  # (nodes + 1,), the first edge of every node
    item: Tensor  # (nodes,), the sequence that ends there, −1 if none does
    width: int  # more than the largest token

    def to(self, device: torch.device) -> Trie:
        """Return the same tree on a device."""
        tensors = (self.key, self.token, self.child, self.first, self.item)
        key, token, child, first, item = (x.to(device) for x in tensors)
        return Trie(key, token, child, first, item, self.width)

    def walk(self, tokens: Tensor) -> Tensor:
        """Return the node that tokens (rows, t) lead to, (rows,); −1 if no sequence begins with them."""
        node = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        for column in tokens.unbind(-1):
            node = self.step(node, column)
        return node

    def step(self, node: Tensor, token: Tensor) -> Tensor:
        """Return the child of every node by its token, −1 if there is none."""
        wanted = node * self.width + token
        edge = torch.searchsorted(self.key, wanted).clamp(max=len(self.key) - 1)
        known = (token >= 0) & (token < self.width)  # padding may be −1
        exists = (node >= 0) & known & (self.key[edge] == wanted)
        return torch.where(exists, self.child[edge], -1)

    def children(self, node: Tensor, symbols: int) -> Tensor:
        """Return which tokens lead from nodes (rows,) to another, (rows, symbols)."""
        known = node.clamp(min=0)
        count = torch.where(node < 0, 0, self.first[known + 1] - self.first[known])
        row = torch.arange(len(node), device=node.device).repeat_interleave(count)
        before = (count.cumsum(0) - count)[row]  # edges of the rows above
        edge = self.first[known][row] + torch.arange(len(row), device=node.device) - before
        mask = torch.zeros(len(node), symbols, dtype=torch.bool, device=node.device)
        mask[row, self.token[edge]] = True
        return mask

    def item_at(self, node: Tensor) -> Tensor:
        """Return the sequence that ends at each node, −1 if none does, or if there is no node."""
        return torch.where(node < 0, -1, self.item[node.clamp(min=0)])


def make_trie(sequences: Sequence[tuple[int, ...]]) -> Trie:
    """Return the tree of the prefixes of token sequences."""
    nodes: dict[tuple[int, ...], int] = {(): 0}
    for sequence in sequences:
        for t in range(1, len(sequence) + 1):
            nodes.setdefault(sequence[:t], len(nodes))
    edges = sorted((nodes[path[:-1]], path[-1], node) for path, node in nodes.items() if path)
    parent, token, child = torch.tensor(edges, device="cpu").unbind(-1)
    width = int(token.max()) + 1
    items = {nodes[sequence]: number for number, sequence in enumerate(sequences)}
    item = torch.tensor([items.get(node, -1) for node in range(len(nodes))], device="cpu")
    first = torch.searchsorted(parent.contiguous(), torch.arange(len(nodes) + 1, device="cpu"))
    return Trie(parent * width + token, token, child, first, item, width)
