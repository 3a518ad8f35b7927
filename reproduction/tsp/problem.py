"""Instances of the travelling salesman problem, and the length of tours."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def tour_length(instances: Tensor, tours: Tensor) -> Tensor:
    r"""$\sum_t \lVert x_{\pi_{t+1}} - x_{\pi_t} \rVert$, back to the start.

    From instances (batch, nodes, 2) and tours (batch, k, nodes) to lengths (batch, k).

    >>> square = torch.tensor([[[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
    >>> tour_length(square, torch.tensor([[[0, 1, 2, 3]]]))
    tensor([[4.]])
    """
    batch = torch.arange(instances.shape[0], device=tours.device)[:, None, None]
    places = instances[batch, tours]
    return (places - places.roll(1, -2)).square().sum(-1).sqrt().sum(-1)


def random_instances(count: int, nodes: int, *, generator: torch.Generator | None) -> Tensor:
    """Draw nodes uniformly in the unit square, (count, nodes, 2)."""
    return torch.rand(count, nodes, 2, generator=generator)


def validation_instances(count: int, nodes: int) -> Tensor:
    """Return the first of the 10 000 validation instances of Kool et al. (2019), (count, nodes, 2).

    >>> validation_instances(2, 20).shape
    torch.Size([2, 20, 2])
    """
    uniform = np.random.RandomState(4321).uniform(size=(count, nodes, 2))
    return torch.from_numpy(uniform).float()


def check_instances(instances: Tensor) -> None:
    """Refuse instances that are not (batch, nodes, 2), finite, in floating point, of two nodes or more."""
    if not instances.is_floating_point():
        raise TypeError(
            f"the instances have dtype {instances.dtype}; expected coordinates in floating point. "
            "Convert them with .float()."
        )
    if instances.dim() != 3 or instances.shape[-1] != 2 or instances.shape[-2] < 2:
        raise ValueError(
            f"the instances have shape {tuple(instances.shape)}; expected (batch, nodes, 2) with "
            "at least two nodes: x and y of every node of every instance."
        )
    readable = instances.device.type == "cpu" and not torch.compiler.is_compiling()
    if readable and not bool(instances.isfinite().all()):
        wrong = int((~instances.isfinite()).flatten(1).any(1).nonzero()[0])
        raise ValueError(
            f"instance {wrong} has a coordinate that is NaN or infinite; expected numbers. "
            "Correct or remove it."
        )
