"""Checkpoints and kept models: written whole or not at all, read without running code in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swor.experiments.runs.errors import UserError
from swor.experiments.runs.folder import replacing
from swor.experiments.runs.settings import Settings, as_json, from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The file from which a run is resumed.

    Args:
        path: such as the ``checkpoint.pt`` of a run.
    """

    path: Path

    def require_none(self) -> None:
        """Refuse to overwrite a run."""
        if self.path.exists():
            raise UserError(
                f"{self.path} exists; expected a folder without a run. Resume the run, or give "
                "another folder."
            )

    def save(self, content: Mapping[str, Any]) -> None:
        """Write everything that the rest of a run depends on: tensors, numbers, strings, dicts."""
        with replacing(self.path) as draft:
            torch.save({"format": FORMAT, **content}, draft)

    def load(self) -> dict[str, Any]:
        """Read what :meth:`save` wrote, with the loader that accepts tensors and plain data only."""
        if not self.path.exists():
            raise UserError(
                f"there is no {self.path}; expected the checkpoint of a run. Give the folder of a "
                "run that was started, or start one without resuming."
            )
        try:
            content: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise UserError(
                f"{self.path} cannot be read ({type(error).__name__}); expected a checkpoint that "
                "training wrote. Restore the file, or start the run again in another folder."
            ) from error
        if content.get("format") != FORMAT:
            raise UserError(
                f"{self.path} has format {content.get('format')!r}; expected {FORMAT}. It was "
                "written by another version: start the run again in another folder."
            )
        return content


def keep_model(path: Path, model: nn.Module, settings: DataclassInstance | None = None) -> None:
    """Write the weights of a model as safetensors.

    Args:
        path: the file.
        model: whose weights are written.
        settings: what the model is built from, for :func:`kept_settings`.
    """
    from safetensors.torch import save_file

    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as draft:
        save_file(weights, draft, None if settings is None else {"settings": as_json(settings)})


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


def load_model(path: Path, model: nn.Module, *, prefix: str = "") -> None:
    """Read the weights that :func:`keep_model` wrote.

    Args:
        path: the file.
        model: what to load into: the whole model, or the part of it that ``prefix`` names.
        prefix: such as ``"encoder."``; the weights of other parts are not loaded.
    """
    try:
        model.load_state_dict(part_of(_read(path)[0], prefix))
    except RuntimeError as error:
        raise UserError(
            f"the weights in {path} are those of another model ({error}); expected those of this "
            "model, as training kept them. Give another file, or train again."
        ) from error


def part_of(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights of the part of a model that a prefix names, such as ``"encoder."``."""
    return {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Weights and metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(
            f"there is no file {path}; expected a model that training kept. Give another file, or "
            "train with --keep-every."
        )
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return weights, file.metadata() or {}
    except SafetensorError as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); expected a model that training kept. "
            "Restore the file, or train again."
        ) from error
