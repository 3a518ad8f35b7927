"""Kept models: the weights of a model as safetensors, with a checksum and the settings beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from reproduction.harness.errors import UserError
from reproduction.harness.folder import replacing
from reproduction.harness.settings import Settings, as_json, from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Unit = Literal["epoch", "step"]
DIGITS: dict[Unit, int] = {"epoch": 4, "step": 6}


def keep_model(path: Path, model: nn.Module, settings: DataclassInstance | None = None) -> None:
    """Write the weights of a model as safetensors; weights that are tied are written once.

    Args:
        path: the file.
        model: whose weights are written.
        settings: what the model is built from, for :func:`kept_settings`.
    """
    from safetensors.torch import save

    state, first = model.state_dict(), _first_names(model)
    weights = {n: w.detach().cpu().contiguous() for n, w in state.items() if first[n] == n}
    metadata = {} if settings is None else {"settings": as_json(settings)}
    metadata["sha256"] = _checksum(weights, metadata.get("settings", ""))
    content = save(weights, metadata)  # in memory: the library's own files ignore the umask
    with replacing(path) as draft:
        draft.write_bytes(content)


def kept_settings(path: Path, kind: type[Settings]) -> Settings:
    """The settings beside the weights that :func:`keep_model` wrote."""
    _, metadata = _read(path)
    if "settings" not in metadata:
        raise UserError(
            f"{path} holds another kind of model; expected one with {kind.__name__} beside its "
            "weights. Give the file that training wrote."
        )
    try:
        return from_json(kind, json.loads(metadata["settings"]))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"the settings in {path} are {metadata['settings']} ({error}); expected those of "
            f"{kind.__name__}. Give the file that training wrote."
        ) from error


def kept_name(unit: Unit, number: int) -> str:
    """Return the name of the file of a kept model.

    >>> kept_name("epoch", 3), kept_name("step", 100)
    ('epoch-0003.safetensors', 'step-000100.safetensors')
    """
    return f"{unit}-{number:0{DIGITS[unit]}d}.safetensors"


def kept_models(run: Path, unit: Unit, wanted: Sequence[int] = ()) -> dict[int, Path]:
    """Return the kept models of a run by epoch or by step, in order.

    Args:
        run: the folder of the run.
        unit: what the models are counted in.
        wanted: the epochs or steps; by default all that were kept.
    """
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


def load_model(path: Path, model: nn.Module, *, prefix: str = "") -> None:
    """Read the weights that :func:`keep_model` wrote.

    Args:
        path: the file.
        model: what to load into: the whole model, or the part of it that ``prefix`` names.
        prefix: such as ``"encoder."``; the weights of other parts are not loaded.
    """
    weights = part_of(_read(path)[0], prefix)
    tied = {n: weights[first] for n, first in _first_names(model).items() if first in weights}
    try:
        model.load_state_dict(tied | weights)
    except RuntimeError as error:
        raise UserError(
            f"the weights in {path} are those of another model ({error}); expected those of this "
            "model, as training kept them. Give another file, or train again."
        ) from error


def part_of(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights of the part of a model that a prefix names, such as ``"encoder."``."""
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


def _first_names(model: nn.Module) -> dict[str, str]:
    """For every name in the state of a model, the first name of the same tensor; others are tied to it."""
    first: dict[tuple[object, ...], str] = {}
    names = {}
    for name, weight in model.state_dict().items():
        place = (weight.data_ptr(), weight.shape, weight.stride(), weight.dtype)
        own = weight.numel() == 0  # empty tensors have no memory to share
        names[name] = name if own else first.setdefault(place, name)
    return names


def _checksum(weights: Mapping[str, Tensor], settings: str) -> str:
    """SHA-256 of the settings, and of the names, types, shapes and bytes of the weights."""
    digest = hashlib.sha256(settings.encode())
    for name, weight in sorted(weights.items()):
        digest.update(repr((name, weight.dtype, tuple(weight.shape))).encode())
        digest.update(weight.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Weights and metadata of a safetensors file; its checksum is verified if it has one."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(
            f"there is no file {path}; expected a model that training kept. Give another file, or "
            "train with --keep-every."
        )
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); expected a model that training kept. "
            "Restore the file, or train again."
        ) from error
    checksum = metadata.get("sha256")
    if checksum is not None and checksum != _checksum(weights, metadata.get("settings", "")):
        raise UserError(
            f"{path} is damaged: its checksum is not that of its content. Restore the file from a "
            "copy, or train again."
        )
    return weights, metadata
