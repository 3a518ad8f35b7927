"""Several processes: one step, and what happens when one of them dies."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_results import logged
from toy_training import ENVIRONMENT, SCRIPT, SETTINGS, Plain, Toy, train

from reproduction.harness.errors import UserError
from reproduction.harness.processes import connect, together


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
    line, alone = logged(tmp_path), logged(tmp_path / "one")
    assert line[1]["loss"] == pytest.approx(alone[1]["loss"], abs=1e-12)


@pytest.mark.parametrize("dies", [0, 1])
def test_a_process_that_dies_ends_the_run_which_can_be_resumed(
    tmp_path: Path, dies: int, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "another process of this run has ended" in said[1 - dies]
    resumed = Toy()
    assert train(resumed, tmp_path, SETTINGS, resume=True)
    assert resumed.calls == 21 - 7  # the end of the first epoch was the last checkpoint
    assert "was written by 2 processes, and the run continues with 1" in capsys.readouterr().out
    again = Toy()
    assert train(again, tmp_path, SETTINGS, resume=True)
    assert "processes" not in capsys.readouterr().out  # the last checkpoint is by one process


def test_processes_that_were_launched_together_do_not_train_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert connect(SETTINGS).num_processes == 1
    monkeypatch.setenv("WORLD_SIZE", "2")  # after this process was connected to no other
    with pytest.raises(UserError, match="2 processes were launched together, but 1 train together"):
        connect(SETTINGS)


def test_other_errors_are_not_taken_for_the_end_of_a_process() -> None:
    with pytest.raises(RuntimeError, match="must match"), together():
        torch.ones(2) + torch.ones(3)
