"""What the paper finds, what we find, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Claim(NamedTuple):
    """A finding of the paper beside ours."""

    where: str
    paper: str
    ours: str
    agrees: bool | None  # None where the two cannot be compared

    @property
    def verdict(self) -> str:
        """In a word."""
        return {True: "agrees", False: "differs", None: "no comparison"}[self.agrees]


def summary(claims: Sequence[Claim]) -> str:
    """All findings as cards, which fit a telephone as well as a desk."""
    cards = "".join(
        f"<li class='{claim.verdict.replace(' ', '-')}'><h3>{escape(claim.where)} "
        f"<span class='verdict'>{claim.verdict}</span></h3><dl><dt>Paper</dt><dd>"
        f"{escape(claim.paper)}</dd><dt>Here</dt><dd>{escape(claim.ours)}</dd></dl></li>"
        for claim in claims
    )
    return f"<ul class='cards'>{cards}</ul>"
