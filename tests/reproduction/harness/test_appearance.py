"""Labels and styles: no two estimators of a figure look the same."""

from __future__ import annotations

from typing import get_args

import pytest

from reproduction.bernoulli.problem import CURVES
from reproduction.bernoulli.task import GRADIENTS
from reproduction.harness.appearance import LABELS, OTHER_LABELS, appearance
from reproduction.tsp.settings import Name
from reproduction.vae.published import NEGATIVE_ELBO, PAPER
from swor.estimators.registry import ESTIMATORS

FIGURES = {
    "figure 1": [curve.name for curve in CURVES],
    "optimisation": list(GRADIENTS),
    "table 1": list(PAPER),
    "figure 2": list(dict.fromkeys(name for name, _ in NEGATIVE_ELBO)),
    "figure 3": list(get_args(Name)),
}


def test_labels_tell_estimators_apart() -> None:
    names = {*ESTIMATORS, *LABELS}
    assert len({appearance(name).label for name in names}) == len(names)
    assert set(OTHER_LABELS) <= set(ESTIMATORS) - set(LABELS)


@pytest.mark.parametrize("figure", FIGURES)
def test_lines_of_a_figure_can_be_told_apart(figure: str) -> None:
    looks = [appearance(name) for name in FIGURES[figure]]
    assert len({(look.colour, look.line) for look in looks}) == len(looks)


def test_biased_estimators_of_the_paper_are_dash_dotted() -> None:
    for name in {*LABELS} & {*ESTIMATORS}:
        assert (appearance(name).line == "-.") == (not ESTIMATORS[name].unbiased), name
