"""The execution of steps: outcomes, logs, interrupted and killed processes, and signs of life."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("rich")

from joblib import delayed
from rich.console import Console

from reproduction.harness.errors import UserError
from reproduction.reproduce import execution
from reproduction.reproduce.command import Settings, outcomes, run_steps
from reproduction.reproduce.execution import (
    Outcome,
    is_done,
    outcome,
    perform,
    signs_of_life,
    workers,
)
from reproduction.reproduce.steps import Step

PROGRAM = execution.PROGRAM
pytestmark = pytest.mark.usefixtures("small_steps")


def step(name: str, *arguments: str) -> Step:
    return Step(name, arguments, 1.0)


def test_a_failure_is_an_outcome_with_a_log(tmp_path: Path) -> None:
    ended = perform(step("bad", "fail"), tmp_path)
    assert ended.error == "RuntimeError: no luck"
    assert outcome(tmp_path, "bad") == ended
    assert not is_done(tmp_path, "bad")
    assert "Traceback" in (tmp_path / "logs" / "bad.txt").read_text()


def test_a_new_attempt_starts_in_an_empty_folder(tmp_path: Path) -> None:
    perform(step("step", "fail"), tmp_path)
    ended = perform(step("step", "write"), tmp_path)
    assert ended.error is None
    assert is_done(tmp_path, "step")


@pytest.mark.parametrize("name", ["checkpoint.pt", "variance.csv"])
def test_an_interrupted_step_continues_in_its_folder(tmp_path: Path, name: str) -> None:
    long = step("long", "stop_after", name)
    assert perform(long, tmp_path).error == "RuntimeError: stopped"
    assert perform(long, tmp_path).error is None


def in_parallel(steps: list[Step], folder: Path, backend: str = "threading") -> list[Outcome]:
    with workers(backend, 2) as parallel:
        return list(parallel(delayed(perform)(step, folder) for step in steps))


def test_steps_run_in_processes_of_one_thread(tmp_path: Path) -> None:
    ended = in_parallel([step(name, "write") for name in "abc"], tmp_path)
    assert [result.error for result in ended] == [None] * 3
    assert {(tmp_path / name / "threads").read_text() for name in "abc"} == {"1"}
    assert (tmp_path / "logs" / "a.txt").read_text().startswith("$ python -m reproduction write")


def run_lingering_steps(folder: Path, program: str) -> None:
    execution.PROGRAM = (program,)
    run_steps([step(name, "linger") for name in "ab"], Settings(out=folder, jobs=2), Console())


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_the_processes_end_with_the_command(stop: signal.Signals, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; import test_execution as t; "
    code += "t.run_lingering_steps(Path(sys.argv[1]), sys.argv[2])"
    command = [sys.executable, "-c", code, str(tmp_path), *execution.PROGRAM]
    notes = [tmp_path / name / "pid.txt" for name in "ab"]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as main:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        main.send_signal(stop)
        main.wait(30)
    wait_until(lambda: not any(alive(int(note.read_text())) for note in notes), seconds=15)
    assert not is_done(tmp_path, "a")


def test_a_process_that_is_killed_fails_alone(tmp_path: Path) -> None:
    steps = [step("killed", "be_killed"), step("other", "write")]
    ended = {result.name: result.error for result in in_parallel(steps, tmp_path)}
    assert ended["other"] is None
    assert "killed by SIGKILL" in ended["killed"]


def test_a_step_that_runs_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "EVERY", 0.2)
    text = StringIO()
    perform(step("ended", "write"), tmp_path)
    with ThreadPoolExecutor(1) as pool, signs_of_life(tmp_path, Console(file=text)):
        ended = pool.submit(perform, step("long", "speak"), tmp_path)
        wait_until(lambda: "long: epoch 7" in text.getvalue())
        (tmp_path / "enough").touch()
        assert ended.result().error is None
    assert "ended" not in text.getvalue()


def test_a_step_of_an_earlier_command_that_was_killed_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "EVERY", 0.05)
    (tmp_path / "logs").mkdir()
    for name, age in (("killed", 60.0), ("running", -60.0)):
        log = tmp_path / "logs" / f"{name}.txt"
        log.write_text("epoch 7\n")
        os.utime(log, (time.time() - age,) * 2)
    text = StringIO()
    with signs_of_life(tmp_path, Console(file=text)):
        wait_until(lambda: "running: epoch 7" in text.getvalue())
    assert "killed" not in text.getvalue()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"name": "step", "colour": 3}'])
def test_a_damaged_outcome_is_none(content: str, tmp_path: Path) -> None:
    perform(step("step", "write"), tmp_path)
    (tmp_path / "outcomes" / "step.json").write_text(content)
    assert not is_done(tmp_path, "step")
    perform(step("step", "write"), tmp_path)
    assert is_done(tmp_path, "step")


def test_a_step_whose_results_were_removed_is_not_done(tmp_path: Path) -> None:
    perform(step("step", "write"), tmp_path)
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
def test_steps_run_on_a_local_cluster(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "PROGRAM", PROGRAM)
    pytest.importorskip(
        {"ray": "ray", "dask": "distributed"}[backend],
        reason=f"{backend} is not installed: pip install 'swor[cluster]'",
    )
    ended = in_parallel([step(name, "rules") for name in "ab"], tmp_path, backend)
    assert [result.error for result in ended] == [None] * 2
    assert all((tmp_path / name / "rules.csv").exists() for name in "ab")


def test_a_missing_backend_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="pip install ray"):
        in_parallel([], tmp_path, "ray")


def test_a_worker_that_is_lost_fails_its_steps_alone(tmp_path: Path) -> None:
    def results() -> Iterator[Outcome]:
        yield perform(step("a", "write"), tmp_path)
        perform(step("b", "write"), tmp_path)  # it ended, but its result did not arrive
        raise ConnectionError("worker 3 does not answer")

    ended = list(outcomes(results(), [step(name) for name in "abc"], tmp_path))
    assert [(each.name, each.error) for each in ended[:2]] == [("a", None), ("b", None)]
    assert ended[2].error == "its worker was lost (ConnectionError: worker 3 does not answer)"


def test_a_log_on_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"logs/a\.txt could not be written \(No space left"):
        perform(step("a", "write"), tmp_path)
