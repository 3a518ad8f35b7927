"""Files of data sets: where they are, how they are downloaded and how they are checked."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from pathlib import Path

from reproduction.harness.errors import UserError
from reproduction.harness.folder import replacing

VARIABLE = "SWOR_DATA"


def data_folder(given: Path | None) -> Path | None:
    """Return the folder that was given, or that SWOR_DATA names; None if there is neither."""
    if given is None and os.environ.get(VARIABLE):
        given = Path(os.environ[VARIABLE])
    if given is not None and not given.is_dir():
        raise UserError(
            f"there is no folder {given}; expected one with the files of the data set. Correct "
            f"--data-dir or the environment variable {VARIABLE}, or leave both out to download."
        )
    return given


def cache() -> Path:
    """Return the folder of downloads: swor in $XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swor"


def read(path: Path, url: str, sha256: str | None = None) -> bytes:
    """Read a file, and refuse a content that is not the published one.

    Args:
        path: the file.
        url: where to get it, for the error.
        sha256: its checksum; None if the content is checked elsewhere.
    """
    if not path.is_file():
        raise UserError(
            f"there is no file {path}; expected it in the folder of the data. Get it from {url}, or "
            f"leave out --data-dir and {VARIABLE} to have it downloaded."
        )
    content = path.read_bytes()
    if sha256 is not None:
        require(content, sha256, str(path), f"Remove it and get it again from {url}.")
    return content


def fetch(url: str, path: Path, sha256: str | None = None) -> bytes:
    """Download a file, check its content, and only then put it in place."""
    content = download(url)
    if sha256 is not None:
        require(content, sha256, url, "Try again, or give a folder that has it with --data-dir.")
    with replacing(path) as draft:
        draft.write_bytes(content)
    return content


def download(url: str) -> bytes:
    """Return the content behind an address."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        raise UserError(
            f"{url} could not be downloaded ({error}); expected a file of the data set. Check the "
            "connection, or get the file elsewhere and give its folder with --data-dir."
        ) from error
    return content


def require(content: bytes, sha256: str, name: str, cure: str) -> None:
    """Refuse a content whose checksum is not the published one."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise UserError(
            f"{name} is truncated or altered: its SHA-256 is {found} ({len(content)} bytes); "
            f"expected {sha256}. {cure}"
        )
