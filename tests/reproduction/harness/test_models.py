"""Kept models: whole files, and errors that say what is wrong with others."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from run_results import same_weights
from safetensors.torch import save_file
from torch import nn

from reproduction.harness.errors import UserError
from reproduction.harness.models import content_sha256, keep_model, kept_settings, load_model
from reproduction.tsp.model import load_attention_model
from reproduction.tsp.settings import ModelSettings


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
    load_model(tmp_path / "model.safetensors", part, part="b")
    assert same_weights(model["b"], part)
    with pytest.raises(UserError, match="expected those of this model"):
        load_model(tmp_path / "model.safetensors", part, part="c")


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
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        load_model(path, model)
    keep_model(path, nn.Linear(2, 2))
    with pytest.raises(UserError, match="expected those of this model"):
        load_model(path, model)
    with pytest.raises(UserError, match="another kind of model"):
        kept_settings(path, Sizes)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read"):
        load_model(path, model)


@pytest.mark.parametrize(
    ("settings", "said"),
    [("[]", "another kind of model"), ("{", "cannot be read"), ('{"depth": 3}', '"depth"')],
)
def test_settings_that_are_none(tmp_path: Path, settings: str, said: str) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(3)}, path, {"settings": settings})
    with pytest.raises(UserError, match=said):
        kept_settings(path, Sizes)


class Tied(nn.Module):
    """Two layers with the same weights, and a buffer of no elements."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("nothing", torch.empty(0))


def test_tied_weights_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model, other = Tied(), Tied()
    keep_model(path, model)
    load_model(path, other)
    assert same_weights(model, other)
    assert other.first.weight is other.second.weight
    untied = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3, bias=False)})
    with pytest.raises(UserError, match="expected those of this model"):
        load_model(path, untied)


def test_the_umask_says_who_may_read_a_model(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        keep_model(tmp_path / "model.safetensors", nn.Linear(2, 3))
    finally:
        os.umask(before)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o640


def test_files_of_the_same_content_have_the_same_hash(tmp_path: Path) -> None:
    weights = {"a": torch.ones(2, 3), "b": torch.tensor(2.0, dtype=torch.bfloat16)}
    kept = {f"name{i}": str(i) for i in range(6)}  # safetensors writes it in any order
    files = [tmp_path / f"{i}.safetensors" for i in range(20)]
    for file in files:
        save_file(weights, file, kept)
    assert len({file.read_bytes() for file in files}) > 1
    (found,) = {content_sha256(file) for file in files}
    for changed, beside in (
        (weights | {"a": torch.zeros(2, 3)}, kept),
        (weights | {"a": torch.ones(3, 2)}, kept),
        (weights, kept | {"name0": "9"}),
    ):
        save_file(changed, tmp_path / "other", beside)
        assert content_sha256(tmp_path / "other") != found


def test_settings_nested_too_deeply_are_damage(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "x", {"settings": "[" * 50_000})
    with pytest.raises(UserError, match="x cannot be read"):
        kept_settings(tmp_path / "x", ModelSettings)


@pytest.mark.parametrize(("name", "size"), [("width", 10**9), ("layers", 10**6), ("hidden", 10**9)])
def test_a_model_that_its_file_cannot_hold_is_not_made(
    name: str, size: int, tmp_path: Path
) -> None:
    claimed = {"width": 8, "heads": 2, "layers": 1, "hidden": 8, "clip": 10.0} | {name: size}
    save_file({"a": torch.ones(1)}, tmp_path / "x", {"settings": json.dumps(claimed)})
    with pytest.raises(UserError, match=rf"x says that it holds|{name} is {size}"):
        load_attention_model(tmp_path / "x")
