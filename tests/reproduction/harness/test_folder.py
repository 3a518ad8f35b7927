"""The folder of a run: new, its files whole, its settings kept."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reproduction.harness import folder
from reproduction.harness.errors import UserError


@dataclass(frozen=True)
class Inner:
    rate: float = 1.0


@dataclass(frozen=True)
class Settings:
    number_of: int = 3
    wrong: str = ""
    inner: Inner = field(default_factory=Inner)


def test_a_folder_is_new(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder.create(tmp_path / "empty")
    made = folder.create(tmp_path / "a" / "b")
    made.write_text("x.txt", "x")
    with pytest.raises(UserError, match="--out"):
        folder.create(made.path)
    with pytest.raises(UserError, match="exists"):
        folder.create(made.path / "x.txt")
    assert (made.path / "x.txt").read_text() == "x"


def test_the_first_free_name(tmp_path: Path) -> None:
    assert folder.unused(tmp_path, "run").name == "run-1"
    folder.create(tmp_path / "run-1")
    assert folder.unused(tmp_path, "run").name == "run-2"


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    run = folder.RunFolder(tmp_path)
    run.write_text("x.txt", "before")

    def fail() -> None:
        with folder.replacing(run.path / "x.txt") as draft:
            draft.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert os.listdir(tmp_path) == ["x.txt"]
    assert (tmp_path / "x.txt").read_text() == "before"


def test_settings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/swor", "toy", "--wrong", "a b"])
    folder.create(tmp_path / "run").write_settings(Settings(inner=Inner(rate=float("inf"))))
    kept = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert kept["settings"] == {"number_of": 3, "wrong": "", "inner": {"rate": "inf"}}
    assert kept["command"] == "swor toy --wrong 'a b'"
    assert {"python", "swor", "torch"} <= set(kept["versions"])


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(number: int) -> None:
        synced.append((os.fstat(number).st_size, (tmp_path / "x.txt").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    folder.RunFolder(tmp_path).write_text("x.txt", "abc")
    assert synced == [(3, False)]


def test_a_run_is_opened_in_its_folder_or_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        made = folder.open_folder(Settings(), "toy", out=None)
        assert made.path == Path("runs") / f"toy-{number}"
        assert (made.path / "settings.json").is_file()
    assert folder.open_folder(Settings(), "toy", out=None, resume=made.path) == made
    with pytest.raises(UserError, match="Leave out --out"):
        folder.open_folder(Settings(), "toy", out=Path("x"), resume=made.path)
