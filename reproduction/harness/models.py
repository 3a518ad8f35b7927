"""Kept models: the weights of a model as safetensors, with the settings that it is built from beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from reproduction.harness.errors import UserError, readable
from reproduction.harness.folder import plain, replacing
from reproduction.harness.settings import Settings, from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MODEL = "model.safetensors"
Unit = Literal["epoch", "step"]
DIGITS: dict[Unit, int] = {"epoch": 4, "step": 6}


def keep_model(path: Path, model: nn.Module, settings: DataclassInstance | None = None) -> None:
    """Write the weights of a model as safetensors, and the settings that it is built from.

    Weights that are tied are written once.
    """
    from safetensors.torch import save_model

    metadata = {}
    if settings is not None:
        metadata["settings"] = json.dumps(plain(asdict(settings)), sort_keys=True)
    with replacing(path) as draft:
        draft.touch()
        mode = draft.stat().st_mode  # by the umask, which safetensors ignores
        save_model(model, str(draft), metadata)
        draft.chmod(mode)


def load_model(path: Path, model: nn.Module, *, part: str = "") -> None:
    """Read the weights that :func:`keep_model` wrote, or those of one part, such as ``"encoder"``."""
    from safetensors.torch import load_model as load

    whole = nn.ModuleDict({part: model}) if part else model
    try:
        with _reading(path):
            missing, unexpected = load(whole, path, strict=False)
        if missing or (unexpected and not part):
            raise RuntimeError(f"missing {sorted(missing)}, unexpected {unexpected}")
    except RuntimeError as error:
        raise UserError(
            f"the weights in {path} are those of another model ({error}); expected those of this "
            "model, as training kept them. Give another file, or train again."
        ) from error


def content_sha256(path: Path) -> str:
    """Return the SHA-256 of the weights and of what is kept beside them.

    That of the file would differ between files of the same weights, since safetensors writes its metadata
    in any order.
    """
    from safetensors import safe_open

    with _reading(path), safe_open(path, framework="pt") as file:
        digest = hashlib.sha256(repr(sorted((file.metadata() or {}).items())).encode())
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def kept_settings(path: Path, kind: type[Settings]) -> Settings:
    """Read the settings beside the weights that :func:`keep_model` wrote."""
    from safetensors import safe_open

    with _reading(path), safe_open(path, framework="pt") as file:
        stored = json.loads((file.metadata() or {}).get("settings", "null"))
    if not isinstance(stored, dict):
        raise UserError(
            f"{path} holds another kind of model; expected one with {kind.__name__} beside its "
            "weights. Give the file that training wrote."
        )
    return from_json(kind, stored, path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn a file that is missing or damaged into an error that names it."""
    from safetensors import SafetensorError

    if not path.is_file():
        raise UserError(
            f"there is no file {path}; expected a model that training kept. Give another file, finish "
            "the run, or train with --keep-every."
        )
    with readable(path, "a model that training kept", SafetensorError, ValueError, RecursionError):
        yield


def kept_name(unit: Unit, number: int) -> str:
    """Return the name of the file of a kept model.

    >>> kept_name("epoch", 3), kept_name("step", 100)
    ('epoch-0003.safetensors', 'step-000100.safetensors')
    """
    return f"{unit}-{number:0{DIGITS[unit]}d}.safetensors"


def kept_models(run: Path, unit: Unit, wanted: Sequence[int] = ()) -> dict[int, Path]:
    """Return the kept models of a run by epoch or by step, in order; by default all of them."""
    found = sorted((run / "models").glob(f"{unit}-*.safetensors"))
    kept = {int(path.stem.split("-")[1]): path for path in found}
    missing = [number for number in wanted if number not in kept]
    if missing or not kept:
        option = "--keep-every" if unit == "epoch" else "--keep-steps"
        raise UserError(
            f"{run / 'models'} has models of the {unit}s {list(kept)}; expected "
            f"{missing or 'at least one'}. Train with {option}."
        )
    return {number: kept[number] for number in sorted(wanted or kept)}
