"""The folder of a run: new, its files whole, its settings kept."""

from __future__ import annotations

import errno
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
    monkeypatch.setattr(sys, "argv", ["/reproduction/__main__.py", "toy", "--wrong", "a b"])
    folder.create(tmp_path / "run").write_settings(Settings(inner=Inner(rate=float("inf"))))
    kept = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert kept["settings"] == {"number_of": 3, "wrong": "", "inner": {"rate": "inf"}}
    assert kept["command"] == "python -m reproduction toy --wrong 'a b'"
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


def test_results_have_a_folder_and_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        made = folder.open_folder(Settings(), "toy", out=None)
        assert made.path == Path("runs") / f"toy-{number}"
        assert (made.path / "settings.json").is_file()
    assert folder.open_folder(Settings(), "toy", out=Path("x")).path == Path("x")


def test_a_lock_has_one_holder_who_removes_drafts(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    draft = tmp_path / "models" / ".epoch-0003.17.draft.safetensors"
    draft.touch()
    with folder.locked(tmp_path):
        assert not draft.exists()
        with pytest.raises(UserError, match=f"{tmp_path} is in use by another process.*Wait"):
            folder.locked(tmp_path).__enter__()
    with folder.locked(tmp_path):
        pass
    (tmp_path / "models").rmdir()
    folder.create(tmp_path)  # the file of the lock is no result


def test_one_of_two_processes_makes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Path.is_dir

    def late(path: Path) -> bool:
        found = plain(path)
        if path.name == "run":
            path.mkdir(exist_ok=True)  # by the other process, just after this one has looked
        return found

    monkeypatch.setattr(Path, "is_dir", late)
    with pytest.raises(UserError, match=r"run exists; expected a new or empty folder"):
        folder.create(tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert [folder.create(None, "x").path.name for _ in range(2)] == ["x-1", "x-2"]


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "Free some space"), (errno.EROFS, "may write to"), (errno.EACCES, "another")],
)
def test_a_file_that_cannot_be_written_is_named(number: int, said: str, tmp_path: Path) -> None:
    def fail() -> None:
        with folder.replacing(tmp_path / "x.txt"):
            raise OSError(number, os.strerror(number))

    with pytest.raises(UserError, match=rf"x\.txt could not be written .*{said}"):
        fail()


@pytest.mark.parametrize("content", ["[" * 50_000, '{"settings": ' * 50_000, "[]", "3"])
def test_damaged_settings_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UserError, match=r"settings\.json cannot be read"):
        folder.read_json(tmp_path / "settings.json")
