"""Checkpoints and kept models: whole files, and errors that say what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from run_results import same_weights
from safetensors.torch import save_file
from torch import nn
from toy_training import SETTINGS, Toy

from swor.experiments.runs.checkpoint import keep_model, kept_settings, load_model
from swor.experiments.runs.errors import UserError
from swor.experiments.runs.training import train


def test_a_killed_write_leaves_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Toy(), tmp_path, replace(SETTINGS, epochs=1))
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def full(content: object, path: Path) -> None:
        path.write_bytes(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected the checkpoint of a run"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"checkpoint\.pt cannot be read.*Restore the file"):
        train(Toy(), tmp_path, SETTINGS, resume=True)
    torch.save({"format": 99}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match="has format 99; expected 1"):
        train(Toy(), tmp_path, SETTINGS, resume=True)


def test_kept_models_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.safetensors"
    model, other = (nn.Linear(2, 3).double() for _ in range(2))
    keep_model(path, model)
    load_model(path, other)
    assert same_weights(model, other)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_part_of_a_kept_model_can_be_read(tmp_path: Path) -> None:
    model, part = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1)}), nn.Linear(3, 1)
    keep_model(tmp_path / "model.safetensors", model)
    load_model(tmp_path / "model.safetensors", part, prefix="b.")
    assert same_weights(model["b"], part)


@dataclass(frozen=True)
class Sizes:
    width: int = 3
    inner: tuple[int, ...] = field(default=(1, 2))


def test_settings_are_kept_beside_the_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    keep_model(path, nn.Linear(2, 3), Sizes(width=7))
    assert kept_settings(path, Sizes) == Sizes(width=7)


def test_files_that_hold_no_model(tmp_path: Path) -> None:
    path, model = tmp_path / "model.safetensors", nn.Linear(2, 3)
    with pytest.raises(UserError, match="--keep-every"):
        load_model(path, model)
    path.write_bytes(b"not a model")
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        load_model(path, model)
    keep_model(path, nn.Linear(2, 2))
    with pytest.raises(UserError, match="expected those of this model"):
        load_model(path, model)
    with pytest.raises(UserError, match="another kind of model"):
        kept_settings(path, Sizes)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        load_model(path, model)


@pytest.mark.parametrize("settings", ["[]", "{", '{"depth": 3}'])
def test_settings_that_are_none(tmp_path: Path, settings: str) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(3)}, path, {"settings": settings})
    with pytest.raises(UserError, match="expected those of Sizes"):
        kept_settings(path, Sizes)
