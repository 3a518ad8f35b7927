"""Training, resuming, solving and drawing, on a model and instances small enough for a test."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from swor.experiments.tsp.estimators import TOUR_ESTIMATORS, greedy_length
from swor.experiments.tsp.run import tsp
from torch import Tensor

import swor
from swor.cli import main
from swor.experiments.runs.errors import UserError
from swor.experiments.runs.metrics import read_records
from swor.experiments.runs.task import Place
from swor.experiments.tsp import (
    AttentionModel,
    ModelSettings,
    TspSettings,
    load_model,
    random_instances,
    save_model,
    tour_length,
)
from swor.experiments.tsp.command import Name, Tsp, new_settings
from swor.experiments.tsp.rollout import RolloutBaseline
from swor.experiments.tsp.task import TourTask

SMALL = ModelSettings(width=16, heads=2, layers=1, hidden=16)
TINY = TspSettings(
    nodes=5,
    batch_size=16,
    validate_every=2,
    epochs=2,
    validation_size=20,
    rollout_size=20,
    model=SMALL,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def command(**changes) -> Tsp:
    tiny = {
        "nodes": 5, "steps": 4, "batch_size": 16, "validate_every": 2, "validation_size": 20,
        "rollout_size": 20, "width": 16, "heads": 2, "layers": 1, "hidden": 16,
    }  # fmt: skip
    return Tsp(**tiny | changes)


def tiny_task(estimator: str = "unordered_set", **changes) -> TourTask:
    k = 1 if TOUR_ESTIMATORS[estimator].single else 4
    return TourTask(replace(TINY, estimator=estimator, k=k, **changes))


def metrics(run: Path) -> list[dict]:
    rows = [*read_records(run, "train"), *read_records(run, "valid")]
    return [{name: row[name] for name in row if name != "seconds"} for row in rows]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", TOUR_ESTIMATORS)
def test_a_run_of_every_estimator(name: str, tmp_path: Path) -> None:
    run = tsp(command(estimator=name, out=tmp_path / "run"))
    valid = list(read_records(run, "valid"))
    assert [record["step"] for record in valid] == [0, 2, 4]
    assert all(record["gap"] > 0 and record["length"] > 1 for record in valid)
    assert load_model(run / "model.safetensors").settings == SMALL


@pytest.mark.parametrize("name", ["unordered_set", "reinforce_rollout"])
def test_a_run_in_two_parts_is_the_run(name: str, tmp_path: Path) -> None:
    whole = tsp(command(estimator=name, steps=8, out=tmp_path / "whole"))
    parts = tsp(command(estimator=name, out=tmp_path / "parts"))
    tsp(Tsp(resume=parts, steps=8))
    assert metrics(whole) == metrics(parts)
    states = [load_model(run / "model.safetensors").state_dict() for run in (whole, parts)]
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
    assert json.loads((parts / "settings.json").read_text())["settings"]["epochs"] == 4


def test_a_run_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tsp(command(out=tmp_path / "whole"))
    loss = TourTask.loss
    calls = []

    def dies(self, batch, generator):
        calls.append(0)
        if len(calls) == 4:
            raise SystemExit(9)
        return loss(self, batch, generator)

    monkeypatch.setattr(TourTask, "loss", dies)
    with pytest.raises(SystemExit):
        tsp(command(out=tmp_path / "killed"))
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    tsp(Tsp(resume=tmp_path / "killed"))
    assert metrics(tmp_path / "killed") == metrics(whole)


@pytest.mark.parametrize(
    "changes",
    [{"k": 3}, {"nodes": 6}, {"seed": 1}, {"width": 32}, {"estimator": "risk"}, {"batch_size": 8}],
)
def test_resuming_with_other_settings_changes_nothing(changes: dict, tmp_path: Path) -> None:
    run = tsp(command(out=tmp_path / "run"))
    before = content(run)
    with pytest.raises(UserError, match="other settings"):
        tsp(Tsp(resume=run, **changes))
    assert content(run) == before


def test_settings_that_make_no_run(tmp_path: Path) -> None:
    for changes, message in [
        ({"steps": 5}, "multiple of 2"),
        ({"estimator": "reinforce_rollout", "k": 2}, "expected k = 1"),
        ({"nodes": 1}, "at least 2"),
        ({"batch_size": 0}, "more than 0"),
        ({"width": 15}, "the heads"),
        ({"estimator": "reinforce_batch_mean", "batch_size": 1}, "two instances"),
    ]:
        with pytest.raises(UserError, match=message):
            tsp(command(**changes, out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_folders_that_are_in_the_way_or_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="nothing is ever overwritten"):
        tsp(command(out=tmp_path))
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(UserError, match=r"there is no .*settings.json"):
        tsp(Tsp(resume=tmp_path / "nowhere"))
    (tmp_path / "settings.json").write_text('{"settings": {"dims": 2}}')
    with pytest.raises(UserError, match="does not hold the settings"):
        tsp(Tsp(resume=tmp_path))
    with pytest.raises(UserError, match="Leave out --out"):
        tsp(Tsp(resume=tmp_path, out=tmp_path / "other"))


def test_the_command_knows_every_estimator() -> None:
    assert get_args(Name) == tuple(TOUR_ESTIMATORS)


def test_defaults_are_the_papers() -> None:
    for name, estimator in TOUR_ESTIMATORS.items():
        settings = new_settings(Tsp(estimator=name))
        assert (settings.k, settings.batch_size) == ((1, 512) if estimator.single else (4, 128))
        assert (settings.learning_rate, settings.clip, settings.nodes) == (1e-4, 1.0, 20)
    assert new_settings(Tsp(k=8)).batch_size == 64


def test_batches_are_fresh_and_depend_on_the_seed() -> None:
    task = tiny_task()
    a, b, c = (task.batch(Place(seed=s, epoch=0, step=t)) for s, t in [(0, 0), (0, 1), (1, 0)])
    assert a.shape == (16, 5, 2)
    assert not torch.equal(a, b)
    assert not torch.equal(a, c)
    torch.testing.assert_close(task.batch(Place(seed=0, epoch=0, step=0)), a)


@pytest.mark.parametrize("name", TOUR_ESTIMATORS)
def test_the_loss_is_the_rule_with_its_baseline(name: str) -> None:
    task = tiny_task(name)
    task.model.eval()
    x = random_instances(16, 5, generator=torch.Generator().manual_seed(1))
    loss, found = task.loss(x, torch.Generator().manual_seed(2))
    noise = torch.Generator().manual_seed(2)
    policy = task.model(x)
    draw = {
        "independent": lambda: swor.ancestral_sample(policy, task.settings.k, generator=noise),
        "distinct": lambda: swor.stochastic_beam_search(policy, task.settings.k, generator=noise),
        "likeliest": lambda: swor.beam_search(policy, task.settings.k),
    }
    sample = draw[TOUR_ESTIMATORS[name].draw.__name__]()
    cost = tour_length(x, sample.value)
    baseline: object = "built-in"
    if name == "reinforce_batch_mean":
        baseline = torch.stack([torch.cat([cost[:i], cost[i + 1 :]]).mean() for i in range(16)])[
            :, None
        ]
    if name == "reinforce_rollout":
        baseline = 0.0  # the moving average starts there
    if name == "sum_and_sample":
        baseline = tour_length(x, swor.ancestral_sample(policy, 1, generator=noise).value)
    expected = TOUR_ESTIMATORS[name].rule(sample).loss(cost, baseline=baseline).mean()
    parameters = list(task.model.parameters())
    torch.testing.assert_close(found["length"], cost.mean())
    torch.testing.assert_close(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    )


def test_training_shortens_the_tours() -> None:
    task = tiny_task(learning_rate=1e-2, validation_size=50)
    before = task.validate(torch.Generator())["gap"]
    noise = torch.Generator().manual_seed(0)
    for _ in range(40):
        task.optimizer.zero_grad()
        task.loss(random_instances(32, 5, generator=noise), noise)[0].backward()
        task.optimizer.step()
    task.model.eval()
    assert task.validate(torch.Generator())["gap"] < 0.5 * before


def rollout_of(model: AttentionModel) -> RolloutBaseline:
    return RolloutBaseline(model, nodes=5, size=50, seed=0)


def test_the_frozen_model_decodes_greedily_after_the_first_epoch() -> None:
    model = AttentionModel(SMALL).eval()
    rollout = rollout_of(model)
    x = random_instances(4, 5, generator=torch.Generator().manual_seed(1))
    assert rollout(x, torch.full((4, 1), 3.0)).eq(0).all()
    assert rollout(x, torch.full((4, 1), 1.0)).eq(3).all()
    torch.testing.assert_close(rollout(x, torch.ones(4, 1)), torch.full((4, 1), 2.6))
    rollout.end_epoch(model)
    expected = greedy_length(model(x), x)
    torch.testing.assert_close(rollout(x, torch.ones(4, 1)).squeeze(1), expected)


def test_a_better_model_takes_over_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def lengths(model: AttentionModel, x: Tensor) -> Tensor:
        """The longer the larger the first number of the placeholder is, give or take."""
        seen.append(x)
        noise = torch.randn(len(x), generator=torch.Generator().manual_seed(len(seen)))
        return 3 + model.decoder.placeholder[0, 0].detach() + noise

    monkeypatch.setattr("swor.experiments.tsp.rollout.lengths", lengths)
    model = AttentionModel(SMALL)
    rollout = rollout_of(model)
    for change, replaced in [(-1.0, 1), (0.0, 1), (2.0, 1), (-4.0, 2)]:
        with torch.no_grad():
            model.decoder.placeholder[0, 0] += change
        assert rollout.end_epoch(model)["rollout_replaced"] == replaced
    torch.testing.assert_close(rollout.best.state_dict(), model.state_dict())
    assert torch.equal(seen[2], seen[4])  # the same instances until the model is replaced,
    assert not torch.equal(seen[0], seen[2])  # and then others


def test_the_frozen_model_does_not_follow_the_trained_one() -> None:
    model = AttentionModel(SMALL)
    rollout = rollout_of(model)
    with torch.no_grad():
        model.decoder.placeholder.zero_()
    assert rollout.best.decoder.placeholder.abs().sum() > 0


@pytest.fixture
def solved(tmp_path: Path) -> tuple[Path, Path]:
    torch.manual_seed(0)
    save_model(AttentionModel(SMALL), tmp_path / "model.safetensors")
    np.savez(tmp_path / "x.npz", instances=np.random.RandomState(0).rand(6, 5, 2))
    return tmp_path / "model.safetensors", tmp_path / "x.npz"


def test_solve_writes_tours_and_draws_them(
    solved: tuple[Path, Path], tmp_path: Path, capsys
) -> None:
    model, instances = map(str, solved)
    out = tmp_path / "out"
    assert main(["tsp-solve", model, instances, "--k", "6", "--optimal", "--out", str(out)]) == 0
    assert "gap" in capsys.readouterr().out
    with (out / "tours.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 6
    x = torch.from_numpy(np.load(instances)["instances"])
    for row in rows:
        tour = torch.tensor([int(node) for node in row["tour"].split()])
        length = float(tour_length(x[[int(row["instance"])]], tour[None, None]))
        assert length == pytest.approx(float(row["length"]), abs=1e-5)
        assert length > float(row["optimal"]) - 1e-5
    with (out / "growth.csv").open() as file:
        growth = list(csv.DictReader(file))
    assert sorted({int(row["k"]) for row in growth}) == [1, 2, 4, 6]
    for method in ("without replacement", "independent"):
        found = [float(row["length"]) for row in growth if row["method"] == method]
        assert found == sorted(found, reverse=True)
    assert all((out / name).stat().st_size > 1000 for name in ("growth.png", "tours.png"))


def test_solve_is_the_same_again(solved: tuple[Path, Path], tmp_path: Path) -> None:
    model, instances = map(str, solved)
    for name in "ab":
        assert main(["tsp-solve", model, instances, "--k", "3", "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a/tours.csv").read_text() == (tmp_path / "b/tours.csv").read_text()


def test_solve_says_what_is_wrong(solved: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    model, instances = map(str, solved)
    out = ["--out", str(tmp_path / "out")]
    for arguments, message in [
        ([instances, instances], "cannot be read as safetensors"),
        ([model, model], "expected .npz or .csv"),
        ([model, instances, "--k", "121"], "k <= 120"),
        ([model, instances, "--k", "0"], "at least 1"),
    ]:
        assert main(["tsp-solve", *arguments, *out]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_figures_of_runs(tmp_path: Path, capsys) -> None:
    runs = [
        str(tsp(command(estimator=name, seed=seed, out=tmp_path / f"{name}-{seed}")))
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
    assert all((out / f"gap-{axis}.png").stat().st_size > 1000 for axis in ("steps", "instances"))
    other = str(tsp(command(nodes=4, out=tmp_path / "other")))
    capsys.readouterr()
    assert main(["tsp-figures", *runs, other, "--out", str(tmp_path / "no")]) == 1
    assert "expected the same number" in capsys.readouterr().err
    assert main(["tsp-figures", str(tmp_path), "--out", str(tmp_path / "no")]) == 1
