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
    lines = [f"{i},{float(a)},{float(b)}" for i, places in enumerate(x) for a, b in places]
    (tmp_path / "x.csv").write_text("\n".join(["instance,x,y", *lines]))
    torch.testing.assert_close(read_instances(tmp_path / "x.csv"), x)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "", "expected .npz"),
        ("x.csv", "", "holds no instances"),
        ("x.csv", "a,b\n1,2\n", "'instance', 'x' and 'y'"),
        ("x.csv", "instance,x,y\n", "holds no instances"),
        ("x.csv", "instance,x,y\n0,a,1\n0,2,2\n", "'a'"),
        ("x.csv", "instance,x,y\n0,1,1\n", "two nodes"),
        ("x.csv", "instance,x,y\n0,,1\n0,2,2\n", "NaN"),
        ("x.csv", "instance,x,y\n0,1,1\n0,2,2\n1,1,1\n", "same shape"),
        ("x.csv", "instance,x,y\n0,1,1\n0,2,2\n,3,3\n", "row 3 .* has no instance"),
        ("x.csv", "instance,x,y\na,1,1\n  ,2,2\na,2,2\n", "row 2 .* has no instance"),
        ("x.csv", "instance,x,y\n0,1e300,1\n0,2,2\n", "NaN or infinite"),
        ("x.npz", "not a zip", "holds no instances"),
    ],
)
def test_files_without_instances(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        read_instances(tmp_path / name)


@pytest.mark.parametrize(
    "arrays",
    [
        {"places": np.ones((2, 3, 2))},
        {"instances": np.array([["a", "b"]])},
        {"instances": np.ones((3, 2))},
        {"instances": np.full((1, 3, 2), np.nan)},
        {"instances": np.ones((0, 3, 2))},
    ],
)
def test_arrays_without_instances(arrays: dict, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match="instance"):
        read_instances(tmp_path / "x.npz")


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
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
