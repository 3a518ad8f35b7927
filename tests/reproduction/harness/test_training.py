"""The training loop: what it writes, how it is stopped and resumed, what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_results import logged, same_weights
from torch import Tensor
from toy_training import ENVIRONMENT, SCRIPT, SETTINGS, Plain, Toy, ToySettings, train

from reproduction.harness import training
from reproduction.harness.errors import UserError
from reproduction.harness.folder import locked
from reproduction.harness.metrics import read_records
from reproduction.harness.models import kept_models, kept_settings, load_model
from reproduction.harness.training import run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Toy]:
    """A run that nothing happened to."""
    folder, task = tmp_path_factory.mktemp("whole"), Toy()
    assert train(task, folder, SETTINGS)
    return folder, task


def test_a_run_writes_metrics_and_learns(whole: tuple[Path, Toy]) -> None:
    folder, _ = whole
    assert [r["step"] for r in read_records(folder, "train")] == [4, 7, 8, 12, 14, 16, 20, 21]
    valid = list(read_records(folder, "valid"))
    assert [(r["step"], r["epoch"]) for r in valid] == [(0, 0), (7, 1), (14, 2), (21, 3)]
    assert valid[-1]["loss"] < valid[0]["loss"]
    assert not (folder / "tensorboard").exists()  # unless it is asked for


@pytest.mark.parametrize("at", [6, 8, 17])
def test_an_interrupted_run_resumes_to_the_same_numbers(
    whole: tuple[Path, Toy], tmp_path: Path, at: int
) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert not train(Toy(strike=(at, signal.SIGINT)), tmp_path, SETTINGS)
    assert signal.getsignal(signal.SIGINT) is before
    resumed = Toy()
    assert train(resumed, tmp_path, SETTINGS, resume=True)
    assert resumed.calls == 21 - at
    assert logged(tmp_path) == logged(whole[0])
    assert same_weights(resumed.model, whole[1].model)


def test_a_killed_run_resumes_to_the_same_numbers(whole: tuple[Path, Toy], tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--kill-at", "14"]
    killed = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = Toy()
    assert train(resumed, tmp_path, SETTINGS, resume=True)
    assert resumed.calls == 21 - 10  # the last checkpoint; lines up to step 12 were written
    assert logged(tmp_path) == logged(whole[0])
    assert same_weights(resumed.model, whole[1].model)


def test_a_finished_run_can_be_given_more_epochs(whole: tuple[Path, Toy], tmp_path: Path) -> None:
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    assert train(Toy(), tmp_path, SETTINGS, resume=True)
    assert logged(tmp_path) == logged(whole[0])


def test_more_epochs_are_remembered_by_a_run_that_is_killed(tmp_path: Path) -> None:
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    with pytest.raises(RuntimeError, match="killed"):
        train(Broken("killed"), tmp_path, SETTINGS, resume=True)
    stored = json.loads((tmp_path / "settings.json").read_text())
    assert stored["settings"]["epochs"] == 3
    assert stored.keys() == {"command", "versions", "settings"}


class Broken(Toy):
    """Fails in its first step."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        raise RuntimeError(self.why)


def test_fewer_epochs_than_a_run_has_had_are_refused(whole: tuple[Path, Toy]) -> None:
    with pytest.raises(UserError, match="epochs is 2, but the run has had 3"):
        train(Toy(), whole[0], replace(SETTINGS, epochs=2), resume=True)


class Exploding(Toy):
    """A loss that is a number, with a gradient that is not, in the last step of the first epoch."""

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(batch, generator)
        if self.calls == 7:
            loss = loss + torch.sqrt(0.0 * loss)
        return loss, metrics


def test_weights_that_are_not_numbers_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the weights 0\.weight are not all finite at step 7"):
        train(Exploding(), tmp_path, SETTINGS)
    assert train(Toy(), tmp_path, SETTINGS, resume=True)  # the checkpoint is from before


def test_other_settings_are_refused(whole: tuple[Path, Toy]) -> None:
    with pytest.raises(UserError, match=r"seed was 0 and is 3; clip was None and is 1\.0.*epochs"):
        train(Toy(), whole[0], replace(SETTINGS, seed=3, clip=1.0), resume=True)


def test_a_run_is_not_overwritten(whole: tuple[Path, Toy]) -> None:
    with pytest.raises(UserError, match="nothing is ever overwritten"):
        train(Toy(), whole[0], SETTINGS)


def test_a_loss_that_is_not_a_number_stops_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the loss is nan at step 0"):
        train(Toy(noise=torch.nan), tmp_path, SETTINGS)


def test_clipping_limits_the_gradient(tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=1, clip=1e-3)
    clipped, free = Plain(), Plain()
    start = [p.detach().clone() for p in clipped.model.parameters()]
    train(clipped, tmp_path / "clipped", settings)
    moved = [p.detach() - s for p, s in zip(clipped.model.parameters(), start, strict=True)]
    assert float(torch.cat([m.flatten() for m in moved]).norm()) == pytest.approx(1e-3, rel=1e-4)
    train(free, tmp_path / "free", replace(settings, clip=None))
    assert not same_weights(clipped.model, free.model)


def test_kept_models_are_those_of_their_epochs(tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=2, keep_every=2))
    kept = sorted(path.name for path in (tmp_path / "models").iterdir())
    assert kept == ["epoch-0000.safetensors", "epoch-0002.safetensors"]


class Begun(Toy):
    """Changes its weights before the first step."""

    def begin(self) -> dict[str, float]:
        next(self.model.parameters()).data.fill_(1.0)
        return {"begun": 1.0}


def test_a_task_begins_once(tmp_path: Path) -> None:
    assert train(Begun(), tmp_path, replace(SETTINGS, epochs=1, keep_steps=(0,)))
    kept = Toy().model
    load_model(kept_models(tmp_path, "step")[0], kept)
    assert next(kept.parameters()).eq(1.0).all()
    assert train(Begun(), tmp_path, SETTINGS, resume=True)
    whole = tmp_path / "whole"
    assert train(Begun(), whole, SETTINGS)
    assert logged(tmp_path) == logged(whole)
    assert [r.get("begun") for r in read_records(whole, "valid")] == [1.0, None, None, None]


def test_models_are_kept_at_given_steps(whole: tuple[Path, Toy], tmp_path: Path) -> None:
    settings = replace(SETTINGS, keep_steps=(0, 3, 7, 21, 100))
    train(Toy(), tmp_path / "whole", settings)
    assert not train(Toy(strike=(6, signal.SIGINT)), tmp_path / "part", settings)
    train(Toy(), tmp_path / "part", settings, resume=True)
    kept = kept_models(tmp_path / "whole", "step")
    assert list(kept) == [0, 3, 7, 21]
    assert logged(tmp_path / "whole") == logged(whole[0])  # keeping a model changes nothing
    model, again = Toy().model, Toy().model
    for step, path in kept.items():
        load_model(path, model)
        load_model(kept_models(tmp_path / "part", "step")[step], again)
        assert same_weights(model, again)
        assert same_weights(model, Toy().model) == (step == 0)
    assert same_weights(model, whole[1].model)
    with pytest.raises(UserError, match=r"models of the steps \[0, 3, 7, 21\]; expected \[4\]"):
        kept_models(tmp_path / "whole", "step", (3, 4))
    with pytest.raises(UserError, match="Train with --keep-every"):
        kept_models(tmp_path / "whole", "epoch")
    with pytest.raises(UserError, match="keep_steps is"):
        replace(SETTINGS, keep_steps=(-1,))


def test_a_command_trains_in_a_folder_and_keeps_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, model = replace(SETTINGS, epochs=1, out=tmp_path / "run"), "model.safetensors"
    toy = Toy()
    toy.model_settings = settings
    path = run(lambda: toy, settings, command="toy", name="toy")
    assert path == tmp_path / "run"
    assert kept_settings(path / model, ToySettings) == settings
    assert f"The run is in {path}" in capsys.readouterr().out
    assert json.loads((path / "settings.json").read_text())["settings"]["epochs"] == 1
    again, before = replace(settings, out=None, resume=path, epochs=3), (path / model).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run(lambda: Toy(strike=(2, signal.SIGINT)), again, command="toy", name="toy")
    assert (path / model).read_bytes() == before  # it is not finished
    assert f"python -m reproduction toy --resume {path}" in capsys.readouterr().out


def test_a_folder_is_refused_before_the_task_is_made(whole: tuple[Path, Toy]) -> None:
    def slow() -> Toy:
        pytest.fail("the task was made first")

    with pytest.raises(UserError, match="nothing is ever overwritten"):
        run(slow, replace(SETTINGS, out=whole[0]), command="toy", name="toy")


def killed_in(folder: Path, *options: str) -> None:
    command = [sys.executable, str(SCRIPT), str(folder), *options]
    killed = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL


def test_a_run_killed_before_its_first_checkpoint_can_be_resumed(
    whole: tuple[Path, Toy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_in(tmp_path, "--kill-in-validation")
    assert not (tmp_path / "checkpoint.pt").exists()
    with pytest.raises(UserError, match="seed was 0 and is 3"):
        train(Toy(), tmp_path, replace(SETTINGS, seed=3), resume=True)
    assert train(Toy(), tmp_path, SETTINGS, resume=True)
    assert "has no checkpoint yet: the run starts from its beginning" in capsys.readouterr().out
    assert logged(tmp_path) == logged(whole[0])


def test_a_run_whose_checkpoint_was_removed_does_not_start_again(tmp_path: Path) -> None:
    train(Toy(), tmp_path, SETTINGS)
    (tmp_path / "checkpoint.pt").unlink()
    before = logged(tmp_path)
    with pytest.raises(UserError, match="expected the checkpoint of a run"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    assert logged(tmp_path) == before


def test_drafts_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    killed_in(tmp_path, "--resume", "--kill-in-save")
    assert [path for path in tmp_path.iterdir() if ".draft" in path.name]
    assert train(Toy(), tmp_path, SETTINGS, resume=True)
    assert not [path for path in tmp_path.iterdir() if ".draft" in path.name]


class Overflowing(Toy):
    """Refuses its numbers, as a distribution does, once weights are not finite or overflow."""

    def __init__(self, *, at: int, weight: float) -> None:
        super().__init__()
        self.at, self.weight = at, weight

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(batch, generator)
        if self.calls == self.at:
            next(self.model.parameters()).data.fill_(self.weight)
            raise ValueError("Expected parameter logits to satisfy the constraint\nnan nan nan")
        return loss, metrics


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (float("nan"), r"the weights 0\.weight are not all finite at step 3.*Training diverged"),
        (1e300, r"the loss cannot be computed \(Expected .* constraint\) at step 3.*diverged"),
    ],
)
def test_divergence_within_an_epoch_is_explained(weight: float, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        train(Overflowing(at=4, weight=weight), tmp_path, SETTINGS)


def test_a_mistake_in_the_first_step_is_no_divergence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected parameter"):
        train(Overflowing(at=1, weight=1.0), tmp_path, SETTINGS)


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--resume", "--stop-at", "2"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert any("stopped" in line for line in other.stdout)
        try:
            with pytest.raises(UserError, match=f"{tmp_path} is in use by another process"):
                train(Toy(), tmp_path, SETTINGS, resume=True)
        finally:
            other.kill()
            other.wait()
    assert train(Toy(), tmp_path, SETTINGS, resume=True)  # a killed process holds no lock


def test_a_folder_in_use_is_refused_before_its_settings_are_changed(tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    before = (tmp_path / "settings.json").read_bytes()
    with locked(tmp_path), pytest.raises(UserError, match="is in use"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    assert (tmp_path / "settings.json").read_bytes() == before


def made_too_early() -> Toy:
    pytest.fail("the task was made first")


def test_a_run_in_use_or_of_other_settings_is_refused_before_its_task_is_made(
    tmp_path: Path, whole: tuple[Path, Toy]
) -> None:
    again = replace(SETTINGS, resume=whole[0])
    with pytest.raises(UserError, match="seed was 0 and is 3"):
        run(made_too_early, replace(again, seed=3), command="toy", name="toy")
    with locked(whole[0]), pytest.raises(UserError, match="is in use"):
        run(made_too_early, replace(again, epochs=4), command="toy", name="toy")


def test_the_settings_of_two_starts_are_those_of_the_one_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, first = tmp_path / "run", replace(SETTINGS, epochs=1)
    out.mkdir()

    @contextmanager
    def after_another(folder: Path) -> Iterator[None]:
        monkeypatch.undo()
        assert train(Toy(), folder, first)  # between the choice of the folder and its lock
        with locked(folder):
            yield

    monkeypatch.setattr(training, "locked", after_another)
    with pytest.raises(UserError, match="nothing is ever overwritten"):
        run(made_too_early, replace(SETTINGS, out=out, seed=9), command="toy", name="toy")
    assert json.loads((out / "settings.json").read_text())["settings"]["seed"] == 0


def test_a_finished_run_says_so(
    whole: tuple[Path, Toy], capsys: pytest.CaptureFixture[str]
) -> None:
    before = logged(whole[0])
    run(Toy, replace(SETTINGS, resume=whole[0]), command="toy", name="toy")
    said = capsys.readouterr().out
    assert "The run is finished: it has had its 3 epochs (--epochs)" in said
    assert "━" not in said
    assert logged(whole[0]) == before


def test_a_run_says_how_long_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproduction.harness.metrics.NOTICED", 0.0)
    monkeypatch.setattr("reproduction.harness.metrics.WORTH_SAYING", 0.0)
    run(Toy, replace(SETTINGS, out=tmp_path / "run"), command="toy", name="toy")
    said = capsys.readouterr().out
    assert "has 3 epochs (--epochs). Give fewer for a shorter run" in said
    assert said.count("15 steps remain: about 0 s, validations not counted") == 1
    assert said.index("epochs (--epochs)") < said.index("epoch    0") < said.index("steps remain")
