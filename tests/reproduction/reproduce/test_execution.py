"""The execution of steps: outcomes, logs, interrupted and killed processes, and signs of life."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("rich")

from rich.console import Console
from small_steps import be_killed, fail, linger, speak, stop_after, write, write_threads

from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.reproduce.command import run_steps
from reproduction.reproduce.execution import (
    RUNNING,
    Outcome,
    as_completed,
    is_done,
    outcome,
    perform,
    workers,
)
from reproduction.reproduce.progress import running, signs_of_life
from reproduction.reproduce.settings import Settings
from reproduction.reproduce.steps import Step, measure_rules


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


@pytest.mark.parametrize("name", ["checkpoint.pt", "variance.csv"])
def test_an_interrupted_step_continues_in_its_folder(tmp_path: Path, name: str) -> None:
    step = Step("long", partial(stop_after, name), 1.0)
    assert perform(step, tmp_path).error == "RuntimeError: stopped"
    assert perform(step, tmp_path).error is None


def in_parallel(steps: list[Step], folder: Path, backend: str = "threading") -> list[Outcome]:
    with workers(backend, 2, None):
        return list(as_completed(partial(perform, folder=folder), steps, backend))


def test_steps_run_in_processes(tmp_path: Path) -> None:
    steps = [Step(name, partial(write, name), 1.0) for name in "abc"]
    ended = in_parallel([*steps, Step("threads", write_threads, 1.0)], tmp_path)
    assert [result.error for result in ended] == [None] * 4
    assert {(tmp_path / name / "x").read_text() for name in "abc"} == set("abc")
    assert (tmp_path / "threads" / "x").read_text() == "1"


def run_lingering_steps(folder: Path) -> None:
    settings = Settings(out=folder, jobs=2)
    run_steps([Step(name, linger, 1.0) for name in "ab"], folder, settings, Console())


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_the_processes_end_with_the_command(stop: signal.Signals, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; import test_execution as t; "
    code += "t.run_lingering_steps(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    notes = [tmp_path / name / "pid.txt" for name in "ab"]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as main:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        main.send_signal(stop)
        main.wait(30)
    wait_until(lambda: not any(alive(int(note.read_text())) for note in notes), seconds=15)
    assert {outcome(tmp_path, name).error for name in "ab"} == {RUNNING}
    assert not is_done(tmp_path, "a")


def test_a_process_that_is_killed_fails_alone(tmp_path: Path) -> None:
    steps = [Step("killed", be_killed, 2.0), Step("other", partial(write, "x"), 1.0)]
    ended = {result.name: result.error for result in in_parallel(steps, tmp_path)}
    assert ended["other"] is None
    assert "killed by SIGKILL" in ended["killed"]


def test_a_step_that_runs_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproduction.reproduce.progress.EVERY", 0.2)
    steps, text = [Step("long", speak, 1.0)], StringIO()
    with ThreadPoolExecutor(1) as pool, signs_of_life(steps, tmp_path, Console(file=text)):
        ended = pool.submit(perform, steps[0], tmp_path)
        wait_until(lambda: "long: epoch 7" in text.getvalue())
        (tmp_path / "enough").touch()
        assert ended.result().error is None
    assert list(running(steps, tmp_path, 0.0)) == []


def test_a_step_of_an_earlier_command_that_was_killed_does_not_run(tmp_path: Path) -> None:
    steps = [Step("step", speak, 1.0)]
    RunFolder(tmp_path / "outcomes").write_json(
        "step.json", {"name": "step", "error": RUNNING, "machine": "", "seconds": 0.0}
    )
    assert len(list(running(steps, tmp_path, 0.0))) == 1
    assert list(running(steps, tmp_path, time.time() + 1.0)) == []


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
    with pytest.raises(UserError, match=r"swor\[cluster\]"):
        in_parallel([], tmp_path, "ray")
