"""Steps of tests are functions of ``small_steps``."""

from __future__ import annotations

from pathlib import Path

import pytest

SMALL_STEPS = Path(__file__).parents[2] / "helpers" / "small_steps.py"


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproduction.reproduce.execution.PROGRAM", (str(SMALL_STEPS),))
