"""Operations on the cache of keys and values: moving rows, and copies that can be extended."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import Cache


def cache_of(output: Any) -> Cache:
    """Return the cache that a model returned, after checking that its rows can be re-ordered."""
    cache: Any = getattr(output, "past_key_values", None)
    if not hasattr(cache, "reorder_cache"):
        raise TypeError(
            f"the model returned {type(cache).__name__} for its past_key_values; expected a "
            "transformers Cache. Use a model that generates with one."
        )
    checked: Cache = cache
    return checked


def layers_of(cache: Cache) -> list[Any]:
    """Return the layers of a cache, or of both caches that an encoder-decoder has."""
    if hasattr(cache, "cross_attention_cache"):
        return [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return list(cache.layers)


def arrange(parents: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return the row of each beam, and the old row that each new row is a copy of, both (beams,).

    Beam i continues row ``parents[i]`` of ``rows``. The first beam that continues a row keeps it, and the
    others take rows that nobody continues, so that as many as possible stay where they are.

    >>> arrange(torch.tensor([2, 0, 0]), 3)  # the third beam takes row 1, which nobody continues
    (tensor([2, 0, 1]), tensor([0, 0, 2]))
    """
    count = len(parents)
    beams = torch.arange(count, device=parents.device)
    first = beams.new_full((rows,), count).scatter_reduce(0, parents, beams, "amin")
    stays = (first[parents] == beams) & (parents < count)
    free = torch.ones_like(beams, dtype=torch.bool)
    free[parents[stays]] = False
    row = parents.clone()
    row[~stays] = free.nonzero().squeeze(-1)
    source = torch.empty_like(parents)
    source[row] = parents
    return row, source


def keep(cache: Cache, source: Tensor, rows: int) -> None:
    """Replace row i of a cache of ``rows`` rows by row ``source[i]``; rows that stay are not copied."""
    moved = (source != torch.arange(len(source), device=source.device)).nonzero().squeeze(-1)
    if len(source) == rows and not len(moved):
        return
    for layer in layers_of(cache):
        if len(source) <= rows and only_attention(layer):
            _move(layer, source, moved)
        else:
            layer.reorder_cache(source)


def _move(layer: Any, source: Tensor, moved: Tensor) -> None:
    if layer.get_seq_length() == 0:  # as in models whose layers share keys and values
        return
    moved, taken = moved.to(layer.keys.device), source[moved].to(layer.keys.device)
    for name in ("keys", "values"):
        states = getattr(layer, name)
        copies = states.index_select(0, taken)
        setattr(layer, name, states[: len(source)].index_copy_(0, moved, copies))


def only_attention(layer: Any) -> bool:
    """Return whether a layer keeps nothing but keys and values, which grow with every token."""
    from transformers.cache_utils import CacheLayerMixin, DynamicLayer

    plain = isinstance(layer, DynamicLayer)
    return plain and type(layer).reorder_cache is CacheLayerMixin.reorder_cache


def fork(cache: Cache) -> Cache:
    """Return a cache of the same tensors that can be extended on its own."""
    other = copy.copy(cache)
    if hasattr(cache, "cross_attention_cache"):
        other.self_attention_cache = fork(cache.self_attention_cache)
        other.cross_attention_cache = fork(cache.cross_attention_cache)
        other.is_updated = dict(cache.is_updated)
    else:
        other.layers = [_fork_layer(layer) for layer in cache.layers]
    return other


def _fork_layer(layer: Any) -> Any:
    other = copy.copy(layer)
    for name, states in vars(layer).items():
        if isinstance(states, dict):  # of a layer with several states, such as linear attention
            setattr(other, name, dict(states))
    return other
