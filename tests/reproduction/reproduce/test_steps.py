"""The steps of a reproduction: their order, their names, and what they measure."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("pandas")

from reproduction.claims.command import COMMITTED
from reproduction.reproduce.settings import FULL, SHORT, Sizes
from reproduction.reproduce.steps import all_steps, applicable, tables
from reproduction.vae.published import PAPER


@pytest.mark.parametrize(("sizes", "number"), [(SHORT, 21), (FULL, 108)])
def test_every_step_comes_after_those_that_it_needs(sizes: Sizes, number: int) -> None:
    steps = all_steps(sizes)
    names = [step.name for step in steps]
    assert len(set(names)) == len(names) == number
    for place, step in enumerate(steps):
        assert set(step.needs) <= set(names[:place])


def test_the_variance_is_measured_on_the_reference_run() -> None:
    (step,) = (step for step in all_steps(SHORT) if step.name == "variance-digits-2")
    assert step.needs == ("vae-digits-2-rloo-4-seed0",)


def test_the_estimators_of_table_1_come_first_and_others_follow() -> None:
    names = applicable(2)
    assert names[: len(PAPER)] == tuple(PAPER)
    assert len(set(names)) == len(names)
    assert "gumbel_softmax" in names
    assert not {"vimco", "arm"} & set(names)  # another objective, and binary variables only


@pytest.mark.parametrize("sizes", [SHORT, FULL])
def test_the_tables_of_claims_are_in_folders_of_steps(sizes: Sizes) -> None:
    found = tables(Path("run"), sizes)
    names = {step.name for step in all_steps(sizes)}
    assert found.short == sizes.short
    assert {path.parent.name for path in found.paths.values()} <= names
    assert set(found.paths) <= set(COMMITTED)
