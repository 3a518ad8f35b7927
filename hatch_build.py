"""Addition to the package build: addresses for the package index, where links of the repository lead nowhere.

The environment variables REPOSITORY_URL and SITE_URL, which the workflows set, name the two addresses.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?!https?:|mailto:|#)([^)\s]+)\)")
PAPER = "https://arxiv.org/abs/2002.06043"


def absolute(text: str, repository: str) -> str:
    """Return a page of the repository with addresses in place of the paths of its files."""

    def address(link: re.Match[str]) -> str:
        picture, label, path = link.groups()
        label = LINK.sub(address, label)  # a badge is a picture inside of a link
        if path.startswith("../../"):  # a page of the hosting site
            return f"{picture}{label}({repository}/{path.removeprefix('../../')})"
        return f"{picture}{label}({repository}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(address, text)


class CustomMetadataHook(MetadataHookInterface):
    """The README and the project links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what ``pyproject.toml`` declares as dynamic."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")
        metadata["urls"] = {"Paper": PAPER}
        if repository:
            text = absolute(text, repository)
            metadata["urls"] |= {
                "Repository": repository,
                "Issues": f"{repository}/issues",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            }
        if site := os.environ.get("SITE_URL"):
            metadata["urls"]["Documentation"] = site
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
