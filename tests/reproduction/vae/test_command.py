"""The command ``vae``: runs that learn, are stopped, killed, resumed, and spread over processes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_results import logged
from small_vae import DIGITS
from torch import Tensor

from reproduction.cli import main
from reproduction.vae.command import vae
from reproduction.vae.task import VAETask

TRAINED = ["unordered_set", "straight_through", "gumbel_softmax", "relax", "arsm", "disarm"]


@pytest.mark.parametrize("name", TRAINED)
def test_training_improves_the_elbo(name: str, tmp_path: Path) -> None:
    categories = 2 if name == "disarm" else 10
    settings = replace(DIGITS, estimator=name, k=2, categories=categories, learning_rate=3e-3)
    settings = replace(settings, out=tmp_path / "run")
    valid = [r for r in logged(vae(settings)) if r["split"] == "valid"]
    assert valid[-1]["negative_elbo"] < 0.8 * valid[0]["negative_elbo"]


def test_the_command_resumes_a_run(run: Path, tmp_path: Path) -> None:
    common = ["vae", "--dims", "2", "--estimator", "rloo", "--cpu"]
    first, out = tmp_path / "run", str(tmp_path / "run")
    assert main([*common, "--epochs", "1", "--keep-every", "1", "--out", out]) == 0
    assert main(["vae", "--resume", out, "--epochs", "2"]) == 0
    assert logged(first) == logged(run)
    assert json.loads((first / "settings.json").read_text())["settings"]["epochs"] == 2
    assert main(["vae", f"--resume={out}"]) == 0  # nothing left to do


def test_a_run_from_the_mean_image_is_recorded_and_resumed(tmp_path: Path) -> None:
    start = ["vae", "--dims", "2", "--cpu", "--output-bias", "mean-image", "--epochs"]
    whole, part = tmp_path / "whole", tmp_path / "part"
    assert main([*start, "2", "--out", str(whole)]) == 0
    assert main([*start, "1", "--out", str(part)]) == 0
    assert main(["vae", "--resume", str(part), "--epochs", "2"]) == 0
    assert logged(part) == logged(whole)
    stored = json.loads((part / "settings.json").read_text())["settings"]
    assert stored["output_bias"] == "mean-image"
    untrained = next(r["negative_elbo"] for r in logged(whole) if r["split"] == "valid")
    assert untrained < 0.8 * 64 * math.log(2)  # what equally likely pixels cost
    assert main(["vae", "--resume", str(part), "--epochs", "3", "--output-bias", "zero"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--estimator", "deterministic_sum_and_sample"], "does not apply here"),
        (["--estimator", "disarm"], "disarm does not apply here"),
        (["--dims", "1", "--k", "11"], "does not apply here: k is 11"),
        (["--batch-size", "0"], "batch_size is 0; expected more than 0"),
        (["--learning-rate", "-1"], "learning_rate is -1.0; expected more than 0"),
        (["--dims", "0"], "dims is 0; expected more than 0"),
        (["--categories", "1"], "categories is 1; expected at least 2"),
        (["--clip", "-1"], "clip is -1.0; expected more than 0"),
        (["--epochs", "-1"], "epochs is -1; expected at least 0"),
        (["--batch-size", "5000"], "Give a smaller --batch-size"),
        (["--resume", "nowhere"], "there is no nowhere/settings.json"),
        (["--data", "mnist", "--data-dir", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vae", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_killed_command_continues_to_the_same_numbers(tmp_path: Path) -> None:
    """In the middle of an epoch, with a control variate that learns too."""
    common = ["vae", "--estimator", "relax", "--dims", "2", "--epochs", "2", "--cpu"]
    options = [*common, "--log-every", "2", "--checkpoint-every", "2", "--out"]
    assert main([*options, str(tmp_path / "whole")]) == 0
    script = "import os, signal, sys; from reproduction.cli import main; "
    script += "from reproduction.vae.task import VAETask as T; plain, calls = T.loss, []\n"
    script += "def struck(*a):\n"
    script += "    calls.append(0)\n"
    script += "    if len(calls) == 12: os.kill(os.getpid(), signal.SIGKILL)\n"
    script += "    return plain(*a)\n"
    script += "T.loss = struck; main(sys.argv[1:])"
    killed = subprocess.run(
        [sys.executable, "-c", script, *options, str(tmp_path / "run")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert main(["vae", "--resume", str(tmp_path / "run")]) == 0
    assert logged(tmp_path / "run") == logged(tmp_path / "whole")


def test_an_interrupted_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = VAETask.loss

    def struck(self: VAETask, batch: Tensor, generator: torch.Generator) -> object:
        signal.raise_signal(signal.SIGINT)
        return plain(self, batch, generator)

    monkeypatch.setattr(VAETask, "loss", struck)
    assert main(["vae", "--dims", "2", "--cpu", "--out", str(tmp_path / "run")]) == 130
    assert f"python -m reproduction vae --resume {tmp_path / 'run'}" in capsys.readouterr().out


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "accelerate": [
        *("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
        *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
    ],
}


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    """With all outcomes in the sample nothing is left to chance, and the numbers are the same."""
    exact = ["--dims", "1", "--categories", "4", "--k", "4"]
    two = launched(LAUNCHERS["torchrun"], exact, tmp_path / "two")
    one = launched([], exact, tmp_path / "one")
    elbos = [[r["negative_elbo"] for r in run] for run in (two, one)]
    assert elbos[0] == pytest.approx(elbos[1], rel=1e-4)
    assert abs(elbos[1][0] - elbos[1][2]) > 1.0  # it has learnt something


@pytest.mark.slow
def test_the_command_runs_on_two_processes(tmp_path: Path) -> None:
    """With either launcher to the same numbers, which are not those of one process."""
    two, same, one = (
        launched(launcher, ["--dims", "2"], tmp_path / name)
        for name, launcher in {**LAUNCHERS, "alone": []}.items()
    )
    assert [r["split"] for r in two] == ["valid", "train", "valid"]
    assert two == same
    assert two[0] == one[0]  # the same weights and validation to begin with
    assert two[1] != one[1]  # every process has noise of its own


def launched(launcher: list[str], options: list[str], out: Path) -> list[dict[str, object]]:
    """The metrics of a run of one epoch."""
    start = ["-m", *launcher] if launcher else []
    command = [*start, "-m", "reproduction", "vae", "--epochs", "1", "--cpu", *options]
    subprocess.run(
        [sys.executable, *command, "--out", str(out)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    return logged(out)
