"""Instances of the travelling salesman problem, random or from files, and the length of tours."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from reproduction.harness.errors import UserError


def tour_length(instances: Tensor, tours: Tensor) -> Tensor:
    r"""$\sum_t \lVert x_{\pi_{t+1}} - x_{\pi_t} \rVert$, back to the start.

    Args:
        instances: (batch, nodes, 2).
        tours: permutations of the nodes, (batch, k, nodes).

    Returns:
        (batch, k)

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


def read_instances(path: Path) -> Tensor:
    """Read instances, (n, nodes, 2).

    Args:
        path: ``*.npz`` with an array ``instances`` (n, nodes, 2), or ``*.csv`` with the columns
            ``instance``, ``x`` and ``y`` and a line per node.
    """
    readers = {".npz": _from_npz, ".csv": _from_csv}
    if path.suffix not in readers:
        raise UserError(f"{path} ends in {path.suffix!r}; expected .npz or .csv. Convert the file.")
    if not path.is_file():
        raise UserError(f"there is no file {path}; expected one with instances.")
    instances = readers[path.suffix](path)
    if len(instances) == 0:
        raise UserError(f"{path} has no instances; expected at least one.")
    try:
        check_instances(instances)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return instances


def _from_npz(path: Path) -> Tensor:
    try:
        file = np.load(BytesIO(path.read_bytes()))
        arrays = dict(file) if isinstance(file, NpzFile) else {}
    except Exception as error:  # a damaged file can raise almost anything
        raise UserError(
            f"{path} cannot be read as .npz ({error}). Write it with numpy.savez."
        ) from error
    instances = arrays.get("instances")
    if not isinstance(instances, np.ndarray) or instances.dtype.kind not in "fiu":
        raise UserError(
            f"{path} has the arrays {sorted(arrays)}; expected numbers named 'instances', of shape "
            "(n, nodes, 2). Write it with numpy.savez(path, instances=...)."
        )
    return _single_precision(instances)


def _from_csv(path: Path) -> Tensor:
    import pandas as pd

    try:
        table = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as .csv ({error}).") from error
    if not {"instance", "x", "y"} <= set(table.columns):
        raise UserError(
            f"{path} has the columns {list(table.columns)}; expected 'instance', 'x' and 'y', with "
            "a line per node."
        )
    if table.empty or not all(table[axis].dtype.kind in "fiu" for axis in "xy"):
        raise UserError(
            f"{path} has no nodes, or an x or y that is no number; expected coordinates."
        )
    names = table["instance"]
    blank = names.isna() | (names.astype(str).str.strip() == "")
    if blank.any():
        raise UserError(
            f"row {int(blank.argmax()) + 1} of {path}, after the header, has no instance; expected "
            "the instance that its node belongs to. Fill the cell, or remove the row."
        )
    groups = [group[["x", "y"]].to_numpy() for _, group in table.groupby("instance", sort=False)]
    sizes = {len(group) for group in groups}
    if len(sizes) > 1:
        raise UserError(
            f"the instances in {path} have {sorted(sizes)} nodes; expected as many in all of them. "
            "Put those of different sizes in different files."
        )
    return _single_precision(np.stack(groups))


def _single_precision(places: NDArray[Any]) -> Tensor:
    with np.errstate(over="ignore"):  # what becomes infinite is refused, in words
        return torch.from_numpy(places.astype(np.float32))
