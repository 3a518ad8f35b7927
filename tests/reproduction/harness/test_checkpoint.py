"""Checkpoints: whole files that are verified, and errors that say what is wrong with others."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_training import SETTINGS, Plain, Toy, train

from reproduction.harness.checkpoint import read_checkpoint, write_checkpoint
from reproduction.harness.errors import UserError


def test_a_killed_write_leaves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    before = (tmp_path / "checkpoint.pt").read_bytes()

    fsync, calls = os.fsync, []

    def full(number: int) -> None:
        calls.append(fsync(number))
        if len(calls) == 2:  # of the first checkpoint, after the settings
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = r"checkpoint\.pt could not be written \(No space left on device\).*resume the run"
    with pytest.raises(UserError, match=said):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert not [path.name for path in tmp_path.iterdir() if ".draft" in path.name]


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"there is no .*settings\.json; expected the folder of a run"
    ):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"checkpoint\.pt cannot be read.*Restore the file"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_no_altered_byte_changes_what_is_loaded(tmp_path: Path) -> None:
    path, weight = tmp_path / "checkpoint.pt", torch.arange(5.0)
    write_checkpoint(path, {"step": 3, "weight": weight})
    content, refused = path.read_bytes(), 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            loaded = read_checkpoint(path)  # a byte of the padding, or of a date
            assert loaded["step"] == 3
            assert torch.equal(loaded["weight"], weight)
        except UserError as error:
            assert "cannot be read" in str(error)
            refused += 1
    assert refused > 300
    for cut in (content[:-1], content[:100], content[:3], b""):
        path.write_bytes(cut)
        with pytest.raises(UserError, match=r"checkpoint\.pt cannot be read"):
            read_checkpoint(path)


def test_an_altered_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    path = tmp_path / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[content.index(b"\x80\x02") + 100] ^= 1  # in the first record
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"the checksum of .* is not that of its content"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("code of a checkpoint was executed",)


@pytest.mark.parametrize("content", [[1, 2], {}, {"model": 3}, {"model": Attack()}])
def test_a_foreign_checkpoint_is_refused(content: Any, tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint\.pt (cannot be read|does not fit this run)"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    train(Plain(), tmp_path, SETTINGS)
    with pytest.raises(UserError, match="does not fit this run"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
