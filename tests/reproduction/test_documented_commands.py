"""The commands that pages give exist, with the options that they are given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from reproduction.cli import commands

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("*.md")]
CALL = re.compile(r"-m (?:python -m )?reproduction ([a-z][a-z0-9-]*)([^`\n#;&|]*)")


def options(kind: Any) -> Iterator[str]:
    """The options of a dataclass of settings, those of nested ones included."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        yield from options(hint) if is_dataclass(hint) else [f"--{field.name.replace('_', '-')}"]


def known() -> dict[str, set[str]]:
    found = {}
    for command in commands():
        (kind,) = (hint for name, hint in get_type_hints(command).items() if name != "return")
        found[command.__name__.replace("_", "-")] = {*options(kind), "--help"}
    return found


def wrong(text: str, known: dict[str, set[str]]) -> list[str]:
    """The calls of a page that cannot work."""
    found = []
    for call in CALL.finditer(text.replace("\\\n", " ")):
        given = set(re.findall(r"(?<!\S)--[a-z0-9-]+", call[2]))
        if "-m python" in call[0] or call[1] not in known or given - known[call[1]]:
            found.append(call[0])
    return found


def test_pages_give_commands_that_exist() -> None:
    table = known()
    calls = {page: wrong(page.read_text(encoding="utf-8"), table) for page in PAGES}
    assert not {page: found for page, found in calls.items() if found}


def test_a_wrong_call_would_be_found() -> None:
    table = {"vae": {"--k"}}
    assert wrong("python -m reproduction vae --k 4", table) == []
    for call in (
        "-m reproduction vea",
        "-m reproduction vae --j 4",
        "-m python -m reproduction vae",
    ):
        assert len(wrong(call, table)) == 1
