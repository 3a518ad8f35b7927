"""metrics.jsonl and TensorBoard: the same numbers, cut where a checkpoint says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_training import SETTINGS, Toy

from swor.experiments.runs.errors import UserError
from swor.experiments.runs.metrics import Meter, read_records
from swor.experiments.runs.training import train


def test_a_meter_averages_what_it_has_seen() -> None:
    meter = Meter()
    for loss in (1.0, 2.0, 6.0):
        meter.add({"loss": loss})
    assert meter.means() == {"loss": 3.0, "steps": 3}
    meter.clear()
    assert meter.means() == {"steps": 0}


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"split": "valid", "x": 1}\n{"split": "va')
    assert list(read_records(tmp_path, "valid")) == [{"split": "valid", "x": 1}]
    path.write_text("{}}\n")
    with pytest.raises(UserError, match=r"line 1 of .*metrics\.jsonl cannot be read"):
        list(read_records(tmp_path, "valid"))


def test_metrics_that_were_cut_are_not_filled_up(tmp_path: Path) -> None:
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match=r"metrics\.jsonl has 50 bytes; expected at least"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_the_board_has_the_numbers_of_the_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(Toy(), tmp_path, SETTINGS)
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for split in ("train", "valid"):
        expected = [(r["step"], r["loss"]) for r in read_records(tmp_path, split)]
        found = [(e.step, e.value) for e in board.Scalars(f"{split}/loss")]
        assert found == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in expected]
