"""``swor explore``: write the page, and open it if asked to."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from swor.experiments.runs.folder import RunFolder

PARTS = {"STYLE": "explorer.css", "MATHS": "maths.js", "SCRIPT": "explorer.js"}


@dataclass(frozen=True)
class Explore:
    """Write a page on which to choose a distribution, k and f, and see what every rule makes of it.

    It needs no network and no server: any browser opens it.
    """

    out: Path = Path("swor-explorer.html")
    """the file to write; it must not exist"""
    open: bool = False
    """open it in the browser"""


def explore(settings: Explore) -> None:
    """Write the page."""
    out = settings.out.resolve()
    if out.exists():
        raise FileExistsError(
            f"{settings.out} exists; expected a new file, since nothing is ever overwritten. Give "
            "another with --out, or remove this one first."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    RunFolder(out.parent).write_text(out.name, page())
    print(f"The page is {settings.out}")
    if settings.open:
        import webbrowser

        webbrowser.open(out.as_uri())


def page() -> str:
    """The whole page in one text."""
    here = files(__package__)
    text = here.joinpath("explorer.html").read_text(encoding="utf-8")
    for place, name in PARTS.items():
        text = text.replace(f"/*{place}*/", here.joinpath(name).read_text(encoding="utf-8"))
    return text
