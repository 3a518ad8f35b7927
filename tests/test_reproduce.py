"""``swor reproduce``: steps that are done once, failures that stop nothing else, and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from swor import cli
from swor.experiments.reproduce import actions
from swor.experiments.reproduce.run import run, run_steps, same_folder
from swor.experiments.reproduce.settings import Settings
from swor.experiments.reproduce.sizes import FULL, SHORT, Sizes
from swor.experiments.reproduce.steps import Step, all_steps
from swor.experiments.runs.errors import UserError
from swor.experiments.runs.interrupt import terminable

Console = pytest.importorskip("rich.console").Console
pytest.importorskip("joblib")


def note(out: Path) -> None:
    """A step that says how often it was done."""
    with (out.parent / "noted.txt").open("a") as file:
        file.write(f"{out.name}\n")


def fail(out: Path) -> None:
    out.mkdir()
    raise RuntimeError("no luck")


def succeed_later(out: Path) -> None:
    if not (out.parent / "ready").exists():
        raise RuntimeError("not yet")


def steps(folder: Path, chosen: list[Step], **settings: object) -> list[str]:
    """Run steps; return those that were not done, and why."""
    said = Console(file=StringIO())
    options = Settings(out=folder, **({"jobs": 1} | settings))
    return [f"{o.name}: {o.error}" for o in run_steps(chosen, folder, options, said)]


def noted(folder: Path) -> list[str]:
    return (folder / "noted.txt").read_text().split()


def test_a_failed_step_stops_only_what_needs_it(tmp_path: Path) -> None:
    chosen = [
        Step("after", note, 1.0, needs=("bad",)),
        Step("bad", fail, 9.0),
        Step("second", note, 1.0, needs=("first",)),
        Step("first", note, 1.0),
    ]
    assert steps(tmp_path, chosen) == ["bad: RuntimeError: no luck", "after: needs bad"]
    assert noted(tmp_path) == ["first", "second"]
    assert "Traceback" in (tmp_path / "logs" / "bad.txt").read_text()


def test_a_failed_step_is_repeated(tmp_path: Path) -> None:
    from swor.experiments.reproduce.perform import is_done

    chosen = [Step("late", succeed_later, 1.0)]
    assert len(steps(tmp_path, chosen)) == 1
    assert not is_done(tmp_path, "late")
    (tmp_path / "ready").touch()
    assert steps(tmp_path, chosen) == []
    assert is_done(tmp_path, "late")


def stop_after(name: str, out: Path) -> None:
    """A step that is stopped after it has written a file, and says what it finds of it next time."""
    if (out / name).exists():
        return note(out)
    out.mkdir()
    (out / name).touch()
    raise RuntimeError("stopped")


@pytest.mark.parametrize("name", ["checkpoint.pt", "variance.csv"])
def test_a_step_that_was_stopped_continues_in_its_folder(tmp_path: Path, name: str) -> None:
    chosen = [Step("long", partial(stop_after, name), 1.0)]
    assert steps(tmp_path, chosen) == ["long: RuntimeError: stopped"]
    assert steps(tmp_path, chosen) == []
    assert noted(tmp_path) == ["long"]


def test_in_processes(tmp_path: Path) -> None:
    chosen = [Step(name, partial(record, name), 1.0) for name in "abc"]
    assert steps(tmp_path, chosen, jobs=2) == []
    assert {(tmp_path / name / "x").read_text() for name in "abc"} == set("abc")


def record(text: str, out: Path) -> None:
    import torch

    assert torch.get_num_threads() == 1
    out.mkdir()
    (out / "x").write_text(text)


def linger(out: Path) -> None:
    """A step that says which process it is in, and takes a minute."""
    out.mkdir()
    (out / "pid.txt").write_text(str(os.getpid()))
    time.sleep(60)


def reproduce_lingering_steps(folder: Path) -> None:
    """What a process does that is about to be told to stop."""
    with terminable():
        steps(folder, [Step(name, linger, 1.0) for name in "ab"], jobs=2)


def test_the_processes_end_with_a_command_that_is_told_to_stop(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; import test_reproduce as t; "
    code += "t.reproduce_lingering_steps(Path(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    notes = [tmp_path / name / "pid.txt" for name in "ab"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) as main:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        main.terminate()
        assert main.wait(30) != 0
    wait_until(lambda: not any(alive(int(note.read_text())) for note in notes))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")  # a process that has ended and that nobody asked after
    return not state.exists() or state.read_text().split()[2] != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true in 40 s")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_on_a_local_cluster(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(
        {"ray": "ray", "dask": "distributed"}[backend],
        reason=f"{backend} is not installed: pip install 'swor[cluster]'",
    )
    chosen = [Step(name, actions.rules, 1.0) for name in "ab"]
    assert steps(tmp_path, chosen, jobs=2, backend=backend) == []
    assert all((tmp_path / name / "rules.csv").exists() for name in "ab")


def test_a_missing_backend_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"swor\[cluster\]"):
        steps(tmp_path, [Step("a", note, 1.0)], backend="ray")


@pytest.mark.parametrize("sizes", [SHORT, FULL])
def test_steps_have_what_they_need(sizes: Sizes) -> None:
    chosen = all_steps(sizes)
    names = [step.name for step in chosen]
    assert len(set(names)) == len(names)
    for place, step in enumerate(chosen):
        assert set(step.needs) <= set(names[:place])


def test_the_plan_is_said_and_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new"
    assert cli.main(["reproduce", "--full", "--plan", "--jobs", "2", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "tsp20-unordered_set-seed1" in said
    assert "days" in said
    assert not out.exists()


def test_other_sizes_need_another_folder(tmp_path: Path) -> None:
    same_folder(tmp_path / "run", SHORT)
    same_folder(tmp_path / "run", SHORT)
    with pytest.raises(UserError, match="--out"):
        same_folder(tmp_path / "run", FULL)


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--jobs", "0"], "at least 1"), (["--address", "host"], "--backend ray")],
)
def test_mistakes_are_explained(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reproduce", *options]) == 2
    assert said in capsys.readouterr().err


TINY = replace(
    SHORT,
    repeats=20,
    curves=SHORT.curves[:3],
    epochs=2,
    keep_every=1,
    repetitions=4,
    repetitions_before=3,
    control_steps=2,
    all_estimators=False,
    steps=2,
    validate_every=1,
    tours=8,
    validation_size=10,
)


@pytest.mark.slow
def test_the_whole_paper_in_miniature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(out=tmp_path / "run", jobs=2)
    run(settings, TINY)
    names = [step.name for step in all_steps(TINY)]
    report = (tmp_path / "run" / "report.html").read_text()
    assert "was not done" not in report
    assert all((tmp_path / "run" / name).is_dir() for name in names)
    outcome = tmp_path / "run" / "outcomes" / "bernoulli.json"
    assert json.loads(outcome.read_text())["error"] is None
    before = outcome.stat().st_mtime_ns
    run(settings, TINY)
    assert outcome.stat().st_mtime_ns == before
    assert f"0 of {len(names)} steps are left" in capsys.readouterr().out
