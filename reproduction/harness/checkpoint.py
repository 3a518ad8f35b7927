"""Checkpoints: written whole or not at all, verified before they are read, never executed.

A checkpoint is a line that names the format, a line with the SHA-256 of the rest of the file, and the
content as :func:`torch.save` writes it. A file with a single altered byte is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from reproduction.harness.errors import UserError
from reproduction.harness.folder import replacing

MAGIC = b"swor checkpoint "
FORMAT = 2  # format 1 had no checksum


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
        buffer = BytesIO()
        torch.save(dict(content), buffer)
        payload = buffer.getbuffer()
        with replacing(self.path) as draft, draft.open("wb") as file:
            file.write(b"%s%d\n%s\n" % (MAGIC, FORMAT, _checksum(payload)))
            file.write(payload)

    def load(self) -> dict[str, Any]:
        """Read what :meth:`save` wrote, with the loader that accepts tensors and plain data only."""
        if not self.path.is_file():
            raise UserError(
                f"there is no {self.path}; expected the checkpoint of a run. Give the folder of a "
                "run that was started, or start one without resuming."
            )
        payload = self._verified(self.path.read_bytes())
        try:
            content = torch.load(BytesIO(payload), map_location="cpu", weights_only=True)
        except Exception as error:
            raise self._damaged(type(error).__name__) from error
        if not isinstance(content, dict):
            raise self._damaged(f"it holds a {type(content).__name__}")
        return content

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Within it, content that does not fit is an error that names the file."""
        try:
            yield
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.path} does not fit this run ({type(error).__name__}: {error}); expected the "
                "checkpoint that this run wrote. Restore the file from a copy, or start the run "
                "again in another folder."
            ) from error

    def _verified(self, stored: bytes) -> bytes:
        """The content of the file, if it is the one that was written."""
        head, checksum, payload = (*stored.split(b"\n", 2), b"", b"")[:3]
        if head.startswith(MAGIC) and head != b"%s%d" % (MAGIC, FORMAT):
            given = head.removeprefix(MAGIC)[:20].decode(errors="replace")
            raise UserError(
                f"{self.path} has format {given!r}; expected {FORMAT}. It was written by another "
                "version: start the run again in another folder."
            )
        if not head.startswith(MAGIC):
            raise self._damaged("it does not begin as a checkpoint of this version does")
        if checksum != _checksum(payload):
            raise self._damaged("its checksum is not that of its content")
        return payload

    def _damaged(self, reason: str) -> UserError:
        return UserError(
            f"{self.path} cannot be read ({reason}); expected a checkpoint that training wrote. It "
            "is damaged, or was written by something else. Restore the file from a copy, or start "
            "the run again in another folder."
        )


def _checksum(payload: bytes | memoryview) -> bytes:
    return hashlib.sha256(payload).hexdigest().encode()
