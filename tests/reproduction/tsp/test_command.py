"""The commands ``tsp`` and ``tsp-figures`` on models of a few nodes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_results import logged, same_weights

from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.models import content_sha256
from reproduction.tsp.command import tsp
from reproduction.tsp.model import load_attention_model
from reproduction.tsp.rollout import greedy_lengths
from reproduction.tsp.settings import ModelSettings, TSPSettings
from reproduction.tsp.task import TOUR_ESTIMATORS, TourTask

SMALL = ModelSettings(width=16, heads=2, layers=1, hidden=16)
TINY = TSPSettings(
    nodes=5,
    steps=4,
    batch_size=16,
    validate_every=2,
    validation_size=20,
    rollout_size=20,
    model=SMALL,
)


def train(out: Path, **changes) -> Path:
    return tsp(replace(TINY, out=out, **changes))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", TOUR_ESTIMATORS)
def test_a_run_of_every_estimator(name: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", estimator=name, keep_every=1)
    valid = list(read_records(run, "valid"))
    assert [record["step"] for record in valid] == [0, 2, 4]
    assert all(record["gap"] > 0 and record["length"] > 1 for record in valid)
    for model in ("model.safetensors", "models/epoch-0001.safetensors"):
        assert load_attention_model(run / model).settings == SMALL


@pytest.mark.parametrize("name", ["unordered_set", "reinforce_rollout"])
def test_a_run_in_two_parts_is_the_run(name: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", estimator=name, steps=8)
    parts = train(tmp_path / "parts", estimator=name)
    assert main(["tsp", "--resume", str(parts), "--steps", "8"]) == 0
    assert logged(whole) == logged(parts)
    assert same_weights(*(load_attention_model(r / "model.safetensors") for r in (whole, parts)))
    assert json.loads((parts / "settings.json").read_text())["settings"]["steps"] == 8


def test_options_are_plain_and_stored(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = "--nodes 4 --steps 1 --width 8 --heads 1 --layers 1 --hidden 8 --clip 2 --cpu"
    sizes = "--batch-size 4 --validation-size 2 --rollout-size 2"
    assert main(["tsp", *options.split(), *sizes.split(), "--out", str(out)]) == 0
    stored = json.loads((out / "settings.json").read_text())["settings"]
    assert stored["model"] == {"width": 8, "heads": 1, "layers": 1, "hidden": 8, "clip": 10.0}
    assert (stored["clip"], stored["k"], stored["validate_every"]) == (2.0, 4, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--k 3", "k was 4 and is 3"),
        ("--width 32", "model.width was 16 and is 32"),
        ("--out other", "Leave out --out"),
        ("--steps 2", "epochs is 1, but the run has had 2"),
    ],
)
def test_resuming_with_other_settings_changes_nothing(
    options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run")
    before = content(run)
    assert main(["tsp", "--resume", str(run), *options.split()]) == 1
    assert message in capsys.readouterr().err
    assert content(run) == before


def test_figures_of_runs(tmp_path: Path, capsys) -> None:
    runs = [
        str(train(tmp_path / f"{name}-{seed}", estimator=name, seed=seed))
        for name in ("unordered_set", "risk")
        for seed in (0, 1)
    ]
    out = tmp_path / "figures"
    assert main(["tsp-figures", *runs, "--out", str(out)]) == 0
    with (out / "gaps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 3
    assert {(row["steps"], row["instances"]) for row in rows} == {
        ("0", "0"),
        ("2", "32"),
        ("4", "64"),
    }
    with (out / "ranking.csv").open() as file:
        ranking = list(csv.DictReader(file))
    gaps = [float(row["gap"]) for row in ranking]
    assert gaps == sorted(gaps)
    assert {row["estimator"] for row in ranking} == {"unordered_set", "risk"}
    assert len((out / "sampled.md").read_text().splitlines()) == 4  # with header and rule
    assert all((out / f"gap-{axis}.png").stat().st_size > 1000 for axis in ("steps", "instances"))
    other = str(train(tmp_path / "other", nodes=4))
    capsys.readouterr()
    assert main(["tsp-figures", *runs, other, "--out", str(tmp_path / "no")]) == 1
    assert "expected the same number" in capsys.readouterr().err
    assert main(["tsp-figures", str(tmp_path), "--out", str(tmp_path / "no")]) == 1


@pytest.mark.parametrize("name", ["unordered_set", "reinforce_rollout"])
def test_a_run_starts_from_the_model_of_another(name: str, tmp_path: Path) -> None:
    start = train(tmp_path / "start", seed=1) / "model.safetensors"
    options = {"estimator": name, "seed": 2, "start_from": start, "keep_steps": (0,)}
    whole = train(tmp_path / "whole", **options, steps=8)
    first = load_attention_model(whole / "models" / "step-000000.safetensors")
    assert same_weights(first, load_attention_model(start))
    stored = json.loads((whole / "settings.json").read_text())["settings"]
    assert stored["start_from"] == str(start)
    assert stored["start_sha256"] == content_sha256(start)
    part = train(tmp_path / "part", **options)
    assert main(["tsp", "--resume", str(part), "--steps", "8"]) == 0
    assert logged(part) == logged(whole)
    assert logged(whole) != logged(train(tmp_path / "other", estimator=name, seed=2, steps=8))


def test_a_rollout_baseline_starts_from_that_model(tmp_path: Path) -> None:
    start = train(tmp_path / "start", seed=1) / "model.safetensors"
    task = TourTask(replace(TINY, estimator="reinforce_rollout", start_from=start))
    x = task.valid[:4]
    greedy = greedy_lengths(load_attention_model(start), x).unsqueeze(-1)
    torch.testing.assert_close(task.rollout(x, torch.full((4, 1), 9.0)), greedy)


def test_a_start_that_is_not_there_or_not_the_same(tmp_path: Path, capsys) -> None:
    start = train(tmp_path / "start", seed=1) / "model.safetensors"
    with pytest.raises(UserError, match="there is no file nowhere"):
        train(tmp_path / "no", start_from=Path("nowhere"))
    with pytest.raises(UserError, match=r"a model of other sizes, .*width=16.*Give --width"):
        train(tmp_path / "no", start_from=start, model=replace(SMALL, width=8))
    assert not (tmp_path / "no").exists()
    run = train(tmp_path / "run", seed=2, start_from=start)
    before = content(run)
    start.write_bytes((run / "model.safetensors").read_bytes())
    assert main(["tsp", "--resume", str(run), "--steps", "8"]) == 1
    assert "has changed since the run was started" in capsys.readouterr().err
    assert content(run) == before


@pytest.mark.parametrize("estimator", ["unordered_set", "rloo"])
def test_a_run_is_trained_for_the_best_of_some_tours(tmp_path: Path, estimator: str) -> None:
    run = train(tmp_path / "run", estimator=estimator, best_of=2, validate_best_of=3)
    *_, last = read_records(run, "valid")
    assert 0.0 <= last["best_of_gap"] < last["sampled_gap"]
    mean = train(tmp_path / "mean", estimator=estimator)
    models = [load_attention_model(path / "model.safetensors") for path in (run, mean)]
    assert not same_weights(*models)


def test_a_best_of_without_its_estimator_or_samples_is_refused() -> None:
    with pytest.raises(UserError, match="expected unordered_set or rloo"):
        replace(TINY, estimator="risk", best_of=2)
    with pytest.raises(UserError, match="best_of is 5 and k 4"):
        replace(TINY, best_of=5)
