"""Checkpoints: whole files that are verified, and errors that say what is wrong with others."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_training import SETTINGS, Plain, Toy

from reproduction.harness.checkpoint import FORMAT, Checkpoint
from reproduction.harness.errors import UserError
from reproduction.harness.folder import RunFolder
from reproduction.harness.settings import as_json
from reproduction.harness.training import train


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

    RunFolder(tmp_path).write_settings(SETTINGS)
    monkeypatch.setattr(os, "fsync", full)
    said = r"checkpoint\.pt could not be written \(No space left on device\).*resume the run"
    with pytest.raises(UserError, match=said):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the checkpoint of a run"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"checkpoint\.pt cannot be read.*Restore the file"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"swor checkpoint 99\n\n")
    with pytest.raises(UserError, match="has format '99'; expected 2"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_no_altered_byte_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    checkpoint.save({"step": 3, "weight": torch.arange(5.0)})
    content = checkpoint.path.read_bytes()
    assert torch.equal(checkpoint.load()["weight"], torch.arange(5.0))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("an altered file was loaded"))
    for at in range(len(content)):
        altered = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        checkpoint.path.write_bytes(altered)
        with pytest.raises(UserError, match=r"checkpoint\.pt (cannot be read|has format)"):
            checkpoint.load()
    for cut in (content[:-1], content[:100], content[:20], content[:3], b"", content + b"\0"):
        checkpoint.path.write_bytes(cut)
        with pytest.raises(UserError, match=r"checkpoint\.pt (cannot be read|has format)"):
            checkpoint.load()


def test_an_altered_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    path = tmp_path / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # in the weights
    path.write_bytes(content)
    with pytest.raises(UserError, match="its checksum is not that of its content"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


@pytest.mark.parametrize("content", [[1, 2], {}, {"settings": 3}, {"settings": as_json(SETTINGS)}])
def test_a_foreign_checkpoint_is_refused(content: Any, tmp_path: Path) -> None:
    buffer = BytesIO()
    torch.save(content, buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    head = f"swor checkpoint {FORMAT}\n{digest}\n".encode()
    (tmp_path / "checkpoint.pt").write_bytes(head + buffer.getvalue())
    with pytest.raises(UserError, match=r"checkpoint\.pt (cannot be read|does not fit this run)"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    train(Plain(), tmp_path, SETTINGS)
    with pytest.raises(UserError, match="does not fit this run"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
