"""The command ``reproduce``: the order of steps, failures that stop nothing else, and the whole paper."""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from io import StringIO
from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("rich")

from rich.console import Console

from reproduction import cli
from reproduction.claims.listed import CLAIMS
from reproduction.harness.errors import UserError
from reproduction.harness.folder import locked
from reproduction.reproduce.command import Settings, reproduction_folder, run, run_steps
from reproduction.reproduce.steps import FULL, SHORT, Step, all_steps


def failures(steps: list[Step], folder: Path) -> list[str]:
    """Run steps, and return those that failed or were skipped."""
    settings = Settings(out=folder, jobs=1)
    ended = run_steps(steps, settings, Console(file=StringIO()))
    return [f"{outcome.name}: {outcome.error}" for outcome in ended]


@pytest.mark.usefixtures("small_steps")
def test_a_failed_step_stops_only_the_steps_that_need_it(tmp_path: Path) -> None:
    steps = [
        Step("after", ("note",), 1.0, needs=("bad",)),
        Step("bad", ("fail",), 9.0),
        Step("second", ("note",), 1.0, needs=("first",)),
        Step("first", ("note",), 1.0),
    ]
    assert failures(steps, tmp_path) == ["bad: RuntimeError: no luck", "after: needs bad"]
    assert (tmp_path / "noted.txt").read_text().split() == ["first", "second"]


@pytest.mark.usefixtures("small_steps")
def test_a_failed_step_can_be_repeated(tmp_path: Path) -> None:
    steps = [Step("late", ("succeed_later",), 1.0)]
    assert failures(steps, tmp_path) == ["late: RuntimeError: not yet"]
    (tmp_path / "ready").touch()
    assert failures(steps, tmp_path) == []


def test_the_plan_is_printed_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert cli.main(["reproduce", "--full", "--plan", "--jobs", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "tsp20-unordered_set-seed1" in printed
    assert "days" in printed
    assert not out.exists()


def test_other_sizes_need_another_folder(tmp_path: Path) -> None:
    reproduction_folder(tmp_path / "run", SHORT)
    reproduction_folder(tmp_path / "run", SHORT)
    with pytest.raises(UserError, match="--out"):
        reproduction_folder(tmp_path / "run", FULL)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"settings": null}'])
def test_damaged_settings_are_an_error(content: str, tmp_path: Path) -> None:
    reproduction_folder(tmp_path / "run", SHORT)
    (tmp_path / "run" / "settings.json").write_text(content)
    with pytest.raises(UserError, match=r"in another folder|Give the folder of a run"):
        reproduction_folder(tmp_path / "run", SHORT)


def test_a_folder_has_one_reproduction_at_a_time(tmp_path: Path) -> None:
    folder = reproduction_folder(tmp_path / "run", SHORT).path
    with locked(folder), pytest.raises(UserError, match="is in use by another process"):
        run(Settings(out=folder, jobs=1), SHORT)
    assert not (folder / "outcomes").exists()


@pytest.mark.parametrize(
    ("settings", "cure"),
    [({"jobs": 0}, "jobs is 0; expected at least 1"), ({"address": "host"}, "--backend ray")],
)
def test_mistakes_are_explained(settings: dict[str, object], cure: str) -> None:
    with pytest.raises(UserError, match=cure):
        Settings(**settings)


def test_short_and_full_results_have_different_folders() -> None:
    assert Settings().folder == Path("runs/reproduce")
    assert Settings(full=True).folder == Path("runs/reproduce-full")
    assert Settings(full=True, out=Path("x")).folder == Path("x")


def test_all_cores_are_used_by_default() -> None:
    joblib = pytest.importorskip("joblib")
    assert Settings().processes == joblib.cpu_count()
    assert Settings(jobs=3).processes == 3


def test_the_full_run_is_not_short() -> None:
    assert SHORT.short and not FULL.short


TINY = replace(
    SHORT,
    curves=SHORT.curves[:3],
    tours=8,
    keep_every=1,
    bernoulli={"repeats": 20},
    vae={"epochs": 2, "batch_size": 100},
    variance={"repetitions": 4, "repetitions_before": 3, "warm_up": 2, "epochs": (1, 2)},
    tsp={"nodes": 10, "steps": 4, "validate_every": 1, "validation_size": 10, "rollout_size": 10},
)


@pytest.mark.slow
def test_the_whole_paper_in_miniature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(out=tmp_path / "run", jobs=2)
    run(settings, TINY)
    names = [step.name for step in all_steps(TINY, tmp_path / "run")]
    report = (tmp_path / "run" / "report.html").read_text()
    assert "has not succeeded" not in report
    assert all(escape(claim.statement) in report for claim in CLAIMS)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Claims and verdicts" in printed
    assert "not measured" not in printed
    assert all((tmp_path / "run" / name).is_dir() for name in names)
    outcome = tmp_path / "run" / "outcomes" / "bernoulli.json"
    assert json.loads(outcome.read_text())["error"] is None
    before = outcome.stat().st_mtime_ns
    run(settings, TINY)
    assert outcome.stat().st_mtime_ns == before
    assert f"0 of {len(names)} steps remain" in capsys.readouterr().out
