"""Settings of the Bernoulli experiment that are refused."""

from __future__ import annotations

import pytest

from reproduction.bernoulli.settings import BernoulliSettings
from reproduction.harness.errors import UserError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 1}, "repeats is 1"),
        ({"runs": 1}, "runs is 1; expected at least 2"),
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"seed": 2**70}, "expected an integer of 64 bits"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        BernoulliSettings(**settings)
