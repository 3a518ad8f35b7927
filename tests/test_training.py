from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_training import SETTINGS, Plain, Toy

from swor.experiments.checkpoint import keep_model, load_model
from swor.experiments.errors import UserError
from swor.experiments.folder import RunFolder
from swor.experiments.processes import together
from swor.experiments.records import read_records
from swor.experiments.task import Place, seeded
from swor.experiments.training import train

SCRIPT = Path(__file__).with_name("toy_training.py")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent.parent)}


def lines(folder: Path) -> list[dict[str, float]]:
    """The metrics of a run, without the wall-clock time."""
    text = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in text]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Toy]:
    """A run that nothing happened to."""
    folder, task = tmp_path_factory.mktemp("whole"), Toy()
    assert train(task, folder, SETTINGS)
    return folder, task


def same(task: Toy, other: Toy) -> bool:
    pairs = zip(task.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_run_writes_metrics_and_learns(whole: tuple[Path, Toy]) -> None:
    folder, _ = whole
    assert [r["step"] for r in read_records(folder, "train")] == [4, 7, 8, 12, 14, 16, 20, 21]
    valid = list(read_records(folder, "valid"))
    assert [(r["step"], r["epoch"]) for r in valid] == [(0, 0), (7, 1), (14, 2), (21, 3)]
    assert valid[-1]["loss"] < valid[0]["loss"]
    assert list((folder / "tensorboard").iterdir())


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
    assert lines(tmp_path) == lines(whole[0])
    assert same(resumed, whole[1])


def test_a_killed_run_resumes_to_the_same_numbers(whole: tuple[Path, Toy], tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--kill-at", "14"]
    killed = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = Toy()
    assert train(resumed, tmp_path, SETTINGS, resume=True)
    assert resumed.calls == 21 - 10  # the last checkpoint; lines up to step 12 were written
    assert lines(tmp_path) == lines(whole[0])
    assert same(resumed, whole[1])


def test_a_finished_run_can_be_given_more_epochs(whole: tuple[Path, Toy], tmp_path: Path) -> None:
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    assert train(Toy(), tmp_path, SETTINGS, resume=True)
    assert lines(tmp_path) == lines(whole[0])


def test_more_epochs_are_remembered_by_a_run_that_is_killed(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_settings(replace(SETTINGS, epochs=1))
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    with pytest.raises(RuntimeError, match="killed"):
        train(Broken("killed"), tmp_path, SETTINGS, resume=True)
    stored = json.loads((tmp_path / "settings.json").read_text())
    assert stored["settings"]["epochs"] == 3
    assert [again.keys() >= {"command", "versions"} for again in stored["resumed"]] == [True]


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


def test_metrics_that_were_cut_are_not_filled_up(tmp_path: Path) -> None:
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match=r"metrics\.jsonl has 50 bytes; expected at least"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"split": "valid", "x": 1}\n{"split": "va')
    assert list(read_records(tmp_path, "valid")) == [{"split": "valid", "x": 1}]
    path.write_text("{}}\n")
    with pytest.raises(UserError, match=r"line 1 of .*metrics\.jsonl cannot be read"):
        list(read_records(tmp_path, "valid"))


def test_the_board_has_the_numbers_of_the_metrics(whole: tuple[Path, Toy]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(whole[0] / "tensorboard")).Reload()
    for split in ("train", "valid"):
        expected = [(r["step"], r["loss"]) for r in read_records(whole[0], split)]
        found = [(e.step, e.value) for e in board.Scalars(f"{split}/loss")]
        assert found == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in expected]


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


def test_a_killed_write_leaves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def full(content: object, path: Path) -> None:
        path.write_bytes(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_other_settings_are_refused(whole: tuple[Path, Toy]) -> None:
    with pytest.raises(UserError, match=r"clip was None and is 1\.0; seed was 0 and is 3.*epochs"):
        train(Toy(), whole[0], replace(SETTINGS, seed=3, clip=1.0), resume=True)


def test_a_run_is_not_overwritten(whole: tuple[Path, Toy]) -> None:
    with pytest.raises(UserError, match="Resume the run, or give another folder"):
        train(Toy(), whole[0], SETTINGS)


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the checkpoint of a run"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"checkpoint\.pt cannot be read.*Restore the file"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    torch.save({"format": 99}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match="has format 99; expected 1"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


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
    assert not same(clipped, free)


def test_kept_models_can_be_read(tmp_path: Path) -> None:
    task = Toy()
    train(task, tmp_path, replace(SETTINGS, epochs=2, keep_every=2))
    kept = sorted((tmp_path / "models").iterdir())
    assert [k.name for k in kept] == ["epoch-0000.safetensors", "epoch-0002.safetensors"]
    other = Toy()
    load_model(kept[-1], other.model)
    assert same(task, other)
    with pytest.raises(UserError, match="--keep-every"):
        load_model(tmp_path / "none.safetensors", other.model)
    keep_model(tmp_path / "new" / "model.safetensors", other.model)
    kept[0].write_bytes(kept[0].read_bytes()[:-7])
    with pytest.raises(UserError, match=r"epoch-0000\.safetensors cannot be read"):
        load_model(kept[0], other.model)
    with pytest.raises(UserError, match="expected the weights of this model"):
        load_model(kept[-1], torch.nn.Linear(2, 2))


def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*run, str(SCRIPT), str(tmp_path), "--one-step"]
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True, timeout=120)
    ranks = [torch.load(tmp_path / f"rank-{r}.pt", weights_only=True) for r in (0, 1)]
    assert ranks[0]["drawn"] != ranks[1]["drawn"]  # no two processes draw the same noise
    one = Plain()
    train(one, tmp_path / "one", replace(SETTINGS, epochs=1))
    for name, expected in one.model.state_dict().items():
        assert torch.equal(ranks[0]["model"][name], ranks[1]["model"][name])
        torch.testing.assert_close(ranks[0]["model"][name], expected, rtol=0, atol=1e-12)
    line, alone = lines(tmp_path), lines(tmp_path / "one")
    assert line[1]["loss"] == pytest.approx(alone[1]["loss"], abs=1e-12)


@pytest.mark.parametrize("dies", [0, 1])
def test_a_process_that_dies_ends_the_run_which_can_be_resumed(tmp_path: Path, dies: int) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    command = [
        sys.executable,
        str(SCRIPT),
        str(tmp_path),
        "--kill-at",
        "9",
        "--kill-rank",
        str(dies),
    ]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    started = [
        subprocess.Popen(
            command,
            env=ENVIRONMENT | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=240)[1] for process in started]
    assert started[dies].returncode == -signal.SIGKILL
    assert started[1 - dies].returncode == 1
    assert "another of the 2 processes of this run has ended" in said[1 - dies]
    resumed = Toy()
    assert train(resumed, tmp_path, SETTINGS, resume=True)
    assert resumed.calls == 21 - 7  # the end of the first epoch was the last checkpoint


def test_other_errors_are_not_taken_for_the_end_of_a_process() -> None:
    with pytest.raises(RuntimeError, match="must match"), together(2):
        torch.ones(2) + torch.ones(3)


def test_places() -> None:
    with pytest.raises(UserError, match="a batch of 7 cannot be shared equally by 2 processes"):
        Place(0, 0, 0, 0, 2).share(torch.arange(7))
    assert seeded(1, 23).initial_seed() != seeded(12, 3).initial_seed()
