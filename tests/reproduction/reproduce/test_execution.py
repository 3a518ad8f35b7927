"""The execution of steps: outcomes, logs, interrupted steps, and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("rich")

from rich.console import Console

from reproduction.harness.errors import UserError
from reproduction.harness.interrupt import terminable
from reproduction.reproduce.command import run_steps
from reproduction.reproduce.execution import (
    Outcome,
    as_completed,
    is_done,
    outcome,
    perform,
    processes,
)
from reproduction.reproduce.settings import Settings
from reproduction.reproduce.steps import Step, measure_rules


def write(text: str, out: Path) -> None:
    import torch

    assert torch.get_num_threads() == 1
    out.mkdir()
    (out / "x").write_text(text)


def fail(out: Path) -> None:
    out.mkdir()
    raise RuntimeError("no luck")


def test_a_failure_is_an_outcome_with_a_log(tmp_path: Path) -> None:
    ended = perform(Step("bad", fail, 1.0), tmp_path)
    assert ended.error == "RuntimeError: no luck"
    assert outcome(tmp_path, "bad") == ended
    assert not is_done(tmp_path, "bad")
    assert "Traceback" in (tmp_path / "logs" / "bad.txt").read_text()


def test_a_new_attempt_starts_in_an_empty_folder(tmp_path: Path) -> None:
    perform(Step("step", fail, 1.0), tmp_path)
    ended = perform(Step("step", partial(write, "x"), 1.0), tmp_path)
    assert ended.error is None
    assert is_done(tmp_path, "step")


def test_the_times_of_all_attempts_are_added(tmp_path: Path) -> None:
    first = perform(Step("step", fail, 1.0), tmp_path)
    second = perform(Step("step", partial(write, "x"), 1.0), tmp_path)
    assert second.seconds > first.seconds > 0.0


def stop_after(name: str, out: Path) -> None:
    """Fail after writing a file; succeed if the file exists already."""
    if not (out / name).exists():
        out.mkdir()
        (out / name).touch()
        raise RuntimeError("stopped")


@pytest.mark.parametrize("name", ["checkpoint.pt", "variance.csv"])
def test_an_interrupted_step_continues_in_its_folder(tmp_path: Path, name: str) -> None:
    step = Step("long", partial(stop_after, name), 1.0)
    assert perform(step, tmp_path).error == "RuntimeError: stopped"
    assert perform(step, tmp_path).error is None


def in_parallel(steps: list[Step], folder: Path, backend: str = "loky") -> list[Outcome]:
    with processes(backend, 2, None):
        return list(as_completed(partial(perform, folder=folder), steps, backend))


def test_steps_run_in_processes(tmp_path: Path) -> None:
    ended = in_parallel([Step(name, partial(write, name), 1.0) for name in "abc"], tmp_path)
    assert [result.error for result in ended] == [None] * 3
    assert {(tmp_path / name / "x").read_text() for name in "abc"} == set("abc")


def linger(out: Path) -> None:
    """Note the process, and take much longer than the test."""
    out.mkdir()
    (out / "pid.txt").write_text(str(os.getpid()))
    time.sleep(600)


def run_lingering_steps(folder: Path) -> None:
    with terminable():
        in_parallel([Step(name, linger, 1.0) for name in "ab"], folder)


def test_the_processes_end_with_a_command_that_is_terminated(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; import test_execution as t; "
    code += "t.run_lingering_steps(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    notes = [tmp_path / name / "pid.txt" for name in "ab"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) as main:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        main.terminate()
        assert main.wait(30) != 0
    wait_until(lambda: not any(alive(int(note.read_text())) for note in notes))


def run_watched_steps(folder: Path) -> None:
    settings = Settings(out=folder, jobs=2)
    run_steps([Step(name, linger, 1.0) for name in "ab"], folder, settings, Console())


def test_the_processes_end_with_a_command_that_is_killed(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; import test_execution as t; "
    code += "t.run_watched_steps(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    notes = [tmp_path / name / "pid.txt" for name in "ab"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL) as main:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        main.kill()
        main.wait(30)
    wait_until(lambda: not any(alive(int(note.read_text())) for note in notes), seconds=15)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"name": "step", "colour": 3}'])
def test_a_damaged_outcome_is_none(content: str, tmp_path: Path) -> None:
    perform(Step("step", partial(write, "x"), 1.0), tmp_path)
    (tmp_path / "outcomes" / "step.json").write_text(content)
    assert not is_done(tmp_path, "step")
    perform(Step("step", partial(write, "y"), 1.0), tmp_path)
    assert is_done(tmp_path, "step")


def test_a_step_whose_results_were_removed_is_not_done(tmp_path: Path) -> None:
    perform(Step("step", partial(write, "x"), 1.0), tmp_path)
    assert is_done(tmp_path, "step")
    shutil.rmtree(tmp_path / "step")
    assert not is_done(tmp_path, "step")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")  # a zombie has ended, although its parent has not waited
    return not state.exists() or state.read_text().split()[2] != "Z"


def wait_until(condition: Callable[[], bool], seconds: int = 120) -> None:
    for _ in range(10 * seconds):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"the condition did not become true within {seconds} s")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_steps_run_on_a_local_cluster(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(
        {"ray": "ray", "dask": "distributed"}[backend],
        reason=f"{backend} is not installed: pip install 'swor[cluster]'",
    )
    ended = in_parallel([Step(name, measure_rules, 1.0) for name in "ab"], tmp_path, backend)
    assert [result.error for result in ended] == [None] * 2
    assert all((tmp_path / name / "rules.csv").exists() for name in "ab")


def test_a_missing_backend_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="pip install ray"):
        in_parallel([], tmp_path, "ray")
