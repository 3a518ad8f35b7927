"""The steps of a reproduction: their order, their names, and what they measure."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("pandas")

from reproduction import cli
from reproduction.claims.command import COMMITTED
from reproduction.reproduce.steps import FULL, SHORT, Sizes, all_steps, applicable, tables
from reproduction.vae.published import PAPER


@pytest.mark.parametrize(("sizes", "number"), [(SHORT, 20), (FULL, 107)])
def test_every_step_comes_after_those_that_it_needs(sizes: Sizes, number: int) -> None:
    steps = all_steps(sizes, Path("run"))
    names = [step.name for step in steps]
    assert len(set(names)) == len(names) == number
    for place, step in enumerate(steps):
        assert set(step.needs) <= set(names[:place])


def test_the_variance_is_measured_on_the_reference_run() -> None:
    (step,) = (step for step in all_steps(SHORT, Path("run")) if step.name == "variance-digits-2")
    assert step.needs == ("vae-digits-2-rloo-4-seed0",)
    assert "run/vae-digits-2-rloo-4-seed0" in step.arguments


@pytest.mark.parametrize("sizes", [SHORT, FULL])
def test_the_arguments_of_every_kind_of_step_are_those_of_a_command(sizes: Sizes) -> None:
    kinds = {step.arguments[0]: step for step in all_steps(sizes, Path("run"), Path("data"))}
    for name, step in kinds.items():
        command, settings = cli.parse([*step.arguments, "--out", "run/x"])
        assert command.__name__.replace("_", "-") == name
        assert settings.out == Path("run/x")


def test_the_estimators_of_table_1_come_first_and_others_follow() -> None:
    names = applicable(2)
    assert names[: len(PAPER)] == tuple(PAPER)
    assert len(set(names)) == len(names)
    assert "gumbel_softmax" in names
    assert not {"vimco", "arm"} & set(names)  # another objective, and binary variables only


@pytest.mark.parametrize("sizes", [SHORT, FULL])
def test_the_tables_of_claims_are_in_folders_of_steps(sizes: Sizes) -> None:
    found = tables(Path("run"), sizes)
    names = {step.name for step in all_steps(sizes, Path("run"))}
    assert found.short == sizes.short
    assert {path.parent.name for path in found.paths.values()} <= names
    assert set(found.paths) <= set(COMMITTED)
