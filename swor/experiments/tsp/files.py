"""Instances from a file."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from swor.experiments.errors import UserError
from swor.experiments.tsp.problem import check_instances


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
    try:
        check_instances(instances)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return instances


def _from_npz(path: Path) -> Tensor:
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, AttributeError, BadZipFile, EOFError) as error:
        raise UserError(
            f"{path} cannot be read as .npz ({error}). Write it with numpy.savez."
        ) from error
    if "instances" not in arrays or arrays["instances"].dtype.kind not in "fiu":
        raise UserError(
            f"{path} has the arrays {sorted(arrays)}; expected numbers named 'instances', of shape "
            "(n, nodes, 2). Write it with numpy.savez(path, instances=...)."
        )
    return torch.from_numpy(arrays["instances"].astype(np.float32))


def _from_csv(path: Path) -> Tensor:
    try:
        table = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as .csv ({error}).") from error
    if not {"instance", "x", "y"} <= set(table.columns):
        raise UserError(
            f"{path} has the columns {list(table.columns)}; expected 'instance', 'x' and 'y', with "
            "a line per node."
        )
    if table.empty or not all(pd.api.types.is_numeric_dtype(table[axis]) for axis in "xy"):
        raise UserError(
            f"{path} has no nodes, or an x or y that is no number; expected coordinates."
        )
    groups = [group[["x", "y"]].to_numpy() for _, group in table.groupby("instance", sort=False)]
    sizes = {len(group) for group in groups}
    if len(sizes) > 1:
        raise UserError(
            f"the instances in {path} have {sorted(sizes)} nodes; expected as many in all of them. "
            "Put those of different sizes in different files."
        )
    return torch.from_numpy(np.stack(groups).astype(np.float32))
