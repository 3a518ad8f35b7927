"""Instances, tour lengths, and files of instances."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from reproduction.harness.errors import UserError
from reproduction.tsp.problem import read_instances, tour_length, validation_instances


def test_tour_length_goes_back_to_the_start() -> None:
    square = torch.tensor([[[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]]).expand(2, 4, 2)
    tours = torch.tensor([[0, 1, 2, 3], [0, 2, 1, 3], [2, 3, 0, 1]]).expand(2, 3, 4)
    expected = torch.tensor([4.0, 2 + 2 * math.sqrt(2), 4.0]).expand(2, 3)
    torch.testing.assert_close(tour_length(square, tours), expected)


def test_validation_instances_are_the_published_ones() -> None:
    x = validation_instances(3, 20)
    np.random.seed(4321)
    torch.testing.assert_close(x, torch.tensor(np.random.uniform(size=(3, 20, 2))).float())
    torch.testing.assert_close(validation_instances(2, 20), x[:2])


def test_instances_from_files(tmp_path: Path) -> None:
    x = validation_instances(3, 4)
    np.savez(tmp_path / "x.npz", instances=x.numpy())
    torch.testing.assert_close(read_instances(tmp_path / "x.npz"), x)


@pytest.mark.parametrize(
    "arrays",
    [
        {"places": np.ones((2, 3, 2))},
        {"instances": np.array([["a", "b"]])},
        {"instances": np.ones((3, 2))},
        {"instances": np.full((1, 3, 2), np.nan)},
        {"instances": np.ones((2, 1, 2))},
        {"instances": np.ones((0, 3, 2))},
    ],
)
def test_arrays_without_instances(arrays: dict, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match="instance"):
        read_instances(tmp_path / "x.npz")


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_text("not a zip")
    with pytest.raises(UserError, match="holds no instances"):
        read_instances(path)
    with path.open("wb") as file:
        np.save(file, np.ones((2, 3, 2)))  # an .npy, renamed
    with pytest.raises(UserError, match=r"expected .npz with an array 'instances'"):
        read_instances(path)
    np.savez_compressed(path, instances=np.ones((2, 3, 2)))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"x.npz holds no instances"):
        read_instances(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        read_instances(tmp_path / "x.csv")
