"""The settings of the command ``reproduce``: defaults, and mistakes that are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.harness.errors import UserError
from reproduction.reproduce.settings import FULL, SHORT, Settings


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"jobs": 0}, "Leave out --jobs"),
        ({"address": "host"}, "--backend ray"),
    ],
)
def test_mistakes_are_explained(settings: dict[str, object], cure: str) -> None:
    with pytest.raises(UserError, match=cure):
        Settings(**settings)


def test_short_and_full_results_have_different_folders() -> None:
    assert Settings().folder == Path("runs/reproduce")
    assert Settings(full=True).folder == Path("runs/reproduce-full")
    assert Settings(full=True, out=Path("x")).folder == Path("x")


def test_all_cores_are_used_by_default() -> None:
    joblib = pytest.importorskip("joblib")
    assert Settings().processes == joblib.cpu_count()
    assert Settings(jobs=3).processes == 3


def test_the_full_run_is_not_short() -> None:
    assert SHORT.short and not FULL.short
