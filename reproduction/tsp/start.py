"""The model whose weights training starts from."""

from __future__ import annotations

from dataclasses import replace

from reproduction.harness.errors import UserError
from reproduction.harness.models import content_sha256, kept_settings
from reproduction.tsp.settings import ModelSettings, TSPSettings


def with_start(settings: TSPSettings) -> TSPSettings:
    """Fill in the SHA-256 of the model that training starts from; it must not change afterwards."""
    path = settings.start_from
    if path is None:
        return settings
    if kept_settings(path, ModelSettings) != settings.model:
        raise UserError(
            f"{path} is a model of other sizes, {kept_settings(path, ModelSettings)}; expected "
            f"{settings.model}. Give --width, --heads, --layers and --hidden of that model."
        )
    found = content_sha256(path)
    if settings.start_sha256 not in (None, found):
        raise UserError(
            f"{path} has changed since the run was started: the SHA-256 of its weights is {found}; expected "
            f"{settings.start_sha256}. Restore the file, or start another run."
        )
    return replace(settings, start_sha256=found)
