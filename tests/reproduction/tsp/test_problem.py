"""Instances, and tour lengths."""

from __future__ import annotations

import math

import numpy as np
import torch

from reproduction.tsp.problem import tour_length, validation_instances


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
