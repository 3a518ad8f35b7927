"""metrics.jsonl and the trackers: the same numbers, cut where a checkpoint says."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from toy_training import ENVIRONMENT, SCRIPT, SETTINGS, Toy, train

from reproduction.cli import main
from reproduction.harness.errors import UserError
from reproduction.harness.metrics import Meter, Records, read_records
from reproduction.harness.processes import connect


def test_a_meter_averages_what_it_has_seen() -> None:
    meter = Meter()
    for loss in (1.0, 2.0, 6.0):
        meter.add({"loss": loss})
    assert meter.means() == {"loss": 3.0, "steps": 3}


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"split": "valid", "x": 1}\n{"split": "va')
    assert list(read_records(tmp_path, "valid")) == [{"split": "valid", "x": 1}]
    for damaged in ("{}}", "{}", "[1]", '{"split": "valid", "x": "y"}'):
        path.write_text(damaged + "\n")
        with pytest.raises(UserError, match=r"line 1 of .*metrics\.jsonl cannot be read"):
            list(read_records(tmp_path, "valid"))


def test_metrics_that_were_cut_are_not_filled_up(tmp_path: Path) -> None:
    assert train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:50])
    with pytest.raises(UserError, match=r"metrics\.jsonl has 50 bytes; expected at least"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_numbers_that_json_has_not_are_written_and_read(tmp_path: Path) -> None:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    written = {"gap": math.nan, "high": math.inf, "low": -math.inf, "one": 1.0}
    Records(tmp_path, 0, connect(SETTINGS)).write("valid", 3, 1, written)
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert line["gap"] == "nan"
    (read,) = read_records(tmp_path, "valid")
    assert math.isnan(read["gap"])
    assert (read["high"], read["low"], read["one"]) == (math.inf, -math.inf, 1.0)


FULL = """
import resource, sys, toy_training as toy
from dataclasses import replace
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
toy.train(toy.Toy(), Path(sys.argv[1]), replace(toy.SETTINGS, log_every=1, checkpoint_every=0))
"""


@pytest.mark.parametrize(("limit", "name"), [(4000, r"checkpoint\.pt"), (100, r"settings\.json")])
def test_a_full_disk_is_named(limit: int, name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path), str(limit)]
    done = subprocess.run(
        command, env=ENVIRONMENT, cwd=SCRIPT.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert re.search(rf"UserError: .*{name} could not be written \(File too large\)", said)
    assert not [path.name for path in tmp_path.iterdir() if ".draft" in path.name]


def test_the_board_has_the_numbers_of_the_metrics(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = replace(SETTINGS, track=("tensorboard",))
    assert not train(Toy(strike=(8, signal.SIGINT)), tmp_path, settings)
    assert train(Toy(), tmp_path, settings, resume=True)
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for split in ("train", "valid"):
        expected = [(r["step"], r["loss"]) for r in read_records(tmp_path, split)]
        found = [(e.step, e.value) for e in board.Scalars(f"{split}/loss")]
        assert found == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in expected]


def test_a_tracker_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproduction.harness.processes.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"wandb is not installed.*pip install wandb"):
        train(Toy(), tmp_path, replace(SETTINGS, track=("wandb",)))


WHOLE = '{"split": "valid", "step": 0, "epoch": 0, "solved": 0.5, "right": 0.5, "gap": 1.0}\n'
DAMAGED = [
    WHOLE.replace("solved", "solvee").replace("gap", "gaq").replace("right", "rihgt"),
    WHOLE.replace("step", "stfp"),
    WHOLE.replace('"step": 0', '"step": -1'),
    WHOLE.replace('"step": 0', '"step": 0.5'),
    WHOLE.replace('"step": 0', f'"step": {10**400}'),
    WHOLE.replace("0.5", "[0.5]"),
    WHOLE.replace("0.5", "null"),
    WHOLE.replace("0.5", str(10**400)),
    WHOLE.replace("valid", "v\\u0061lid").replace("1.0", "true"),
    "3\n",
    "[" * 50_000 + "\n",
    WHOLE[:40] + "\n",
    "\n",
    WHOLE.replace("solved", "solv\xe9d").encode("latin-1"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_named_by_every_command_that_reads_it(
    line: str | bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    run.mkdir()
    for command in ("lm-figures", "tsp-figures", "vae-figures", "best-of-figures"):
        best = {"validate_best_of": 2} if command == "best-of-figures" else {}
        (run / "settings.json").write_text(json.dumps({"settings": {"seed": 0} | best}))
        content = line if isinstance(line, bytes) else line.encode()
        (run / "metrics.jsonl").write_bytes(content)
        assert main([command, str(run), "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert str(run) in error and "Traceback" not in error
        assert not out.exists()


def test_a_full_disk_is_named_when_the_log_is_opened(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    records = Records.__new__(Records)
    records.path, records.began = tmp_path / "metrics.jsonl", 0.0
    records.accelerator = connect(SETTINGS)
    with pytest.raises(UserError, match=r"metrics\.jsonl could not be written \(No space left"):
        records.write("valid", 0, 0, {"loss": 1.0})
