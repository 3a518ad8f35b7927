"""The best of k tours: by each method, in parts that are done once, and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

import swor
from reproduction.cli import main
from reproduction.harness.models import keep_model
from reproduction.tsp import best_of_k
from reproduction.tsp.best_of_k import METHODS, best_lengths, equal_number, marked, sizes
from reproduction.tsp.command import tsp_best_of_k
from reproduction.tsp.figures import best_of_k_figure
from reproduction.tsp.measurement_settings import TSPBestOfK
from reproduction.tsp.model import AttentionModel, load_attention_model
from reproduction.tsp.problem import tour_length, validation_instances
from reproduction.tsp.settings import ModelSettings


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = AttentionModel(ModelSettings(width=16, heads=2, layers=1, hidden=16))
    keep_model(tmp_path / "model.safetensors", network, network.settings)
    return tmp_path / "model.safetensors"


@pytest.fixture
def settings(model: Path, tmp_path: Path) -> TSPBestOfK:
    return TSPBestOfK(model=model, nodes=4, instances=6, k=24, out=tmp_path / "out")


def test_all_tours_have_the_shortest_among_them(settings: TSPBestOfK) -> None:
    table = pd.read_csv(tsp_best_of_k(settings) / "best_of_k.csv")
    assert set(table["method"]) == set(METHODS) and sorted(set(table["k"])) == sizes(24)
    last = table[table["k"] == 24].set_index("method")  # there are 24 tours of 4 nodes
    assert last["gap"]["distinct"] == pytest.approx(0.0, abs=1e-4)
    assert last["gap"]["beam_search"] == pytest.approx(0.0, abs=1e-4)
    for _, rows in table.groupby("method"):
        assert (rows["gap"].diff().dropna() <= 1e-9).all() and (rows["gap"] > -1e-4).all()
    assert (table["reference"] == "optimal").all()
    repeats = table[table["method"] == "sampling"].set_index("k")["duplicates"]
    assert repeats[1] == 0.0 and repeats[24] > 20.0
    assert (table[table["method"] != "sampling"]["duplicates"] == 0.0).all()


def test_the_first_tours_of_a_sample_are_a_sample(model: Path) -> None:
    network = load_attention_model(model)
    x = validation_instances(3, 5)
    lengths, _ = best_lengths(network, x, 8, torch.Generator().manual_seed(1))
    again = torch.Generator().manual_seed(1)
    with torch.no_grad():
        independent = swor.ancestral_sample(network(x), 8, generator=again).value
        beams = swor.beam_search(network(x), 2).value
    assert torch.equal(lengths[0, :, 1], tour_length(x.double(), independent[:, :2]).amin(-1))
    assert torch.equal(lengths[2, :, 1], tour_length(x.double(), beams).amin(-1))


def test_parts_that_are_done_are_kept(
    settings: TSPBestOfK, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_of_k, "PART", 2)
    whole = tsp_best_of_k(settings)
    other, calls = tmp_path / "other", []

    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return best_lengths(*arguments)

    monkeypatch.setattr(best_of_k, "best_lengths", stopped)
    with pytest.raises(KeyboardInterrupt):
        tsp_best_of_k(replace(settings, out=other))
    assert main(["tsp-best-of-k", str(settings.model), "--resume", str(other)]) == 0
    assert len(calls) == 4  # the first part was not done again
    assert (whole / "best_of_k.csv").read_text() == (other / "best_of_k.csv").read_text()


def test_without_optimal_tours_the_best_that_was_found_counts(settings: TSPBestOfK) -> None:
    table = pd.read_csv(tsp_best_of_k(replace(settings, optimal=False, k=4)) / "best_of_k.csv")
    assert (table["reference"] == "best found").all() and (table["gap"] >= 0.0).all()
    assert table[table["method"] == "sampling"]["gap"].iloc[0] > 0.0


def test_the_picture_names_its_lines_and_what_they_mean(settings: TSPBestOfK) -> None:
    table = pd.read_csv(tsp_best_of_k(settings) / "best_of_k.csv")
    figure = best_of_k_figure(table, table)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[:2] == ["independent tours", "distinct tours"]
    assert len(texts) == 3 and len(figure.axes) == 2


def growth(distinct: list[float]) -> pd.DataFrame:
    """Return the gaps of the best of 1, 2 and 4 tours, independent ones and these distinct ones."""
    gaps = {"sampling": [0.4, 0.2, 0.1], "distinct": distinct}
    rows = [
        {"nodes": 9, "method": name, "k": k, "gap": gap, "duplicates": 5.0, "reference": "optimal"}
        for name, column in gaps.items()
        for k, gap in zip((1, 2, 4), column, strict=True)
    ]
    return pd.DataFrame(rows)


def test_the_largest_number_of_distinct_tours_with_an_equal_is_marked() -> None:
    assert marked(growth([0.4, 0.1, 0.05])) == 2  # four distinct ones are better than any here
    figure = best_of_k_figure(growth([0.4, 0.1, 0.04]))
    text = figure.axes[0].texts[2].get_text()
    assert text == "2 distinct tours\nare as good as 4\nindependent ones"
    assert len(figure.axes[0].lines) == 3  # with the dotted one between the two


def test_where_nothing_is_gained_the_picture_has_the_duplicates() -> None:
    figure = best_of_k_figure(growth([0.4, 0.21, 0.11]))
    assert figure.axes[0].texts[2].get_text().startswith("5 % of 4 independent tours")
    table = growth([0.4, 0.21, 0.11]).assign(instances=5, gap_error=0.1)
    assert best_of_k.answer(table).endswith("the best of 4 independent tours is not longer.\n")
    assert len(figure.axes[0].lines) == 2


def test_the_equal_number_is_read_from_the_curve() -> None:
    curve = pd.Series({1: 0.4, 4: 0.2, 16: 0.1})
    assert [equal_number(gap, curve) for gap in (0.4, 0.2, 0.15)] == pytest.approx([1, 4, 8])
    assert equal_number(0.05, curve) == float("inf")


def test_more_tours_than_there_are_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tsp-best-of-k", str(model), "--nodes", "3", "--k", "7"]) == 1
    assert "only 6 tours" in capsys.readouterr().err
