"""Places in a run, and the generators that they seed."""

from __future__ import annotations

import pytest
import torch

from reproduction.harness.errors import UserError
from reproduction.harness.task import Place, seeded


def test_a_batch_is_shared_equally_and_places_have_their_own_noise() -> None:
    with pytest.raises(UserError, match="a batch of 7 cannot be shared equally by 2 processes"):
        Place(0, 0, 0, 0, 2).share(torch.arange(7))
    assert seeded(1, 23).initial_seed() != seeded(12, 3).initial_seed()
