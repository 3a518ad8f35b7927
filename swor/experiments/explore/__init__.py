"""``swor explore``: write an interactive page on sampling without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from swor.experiments.runs.folder import RunFolder

PARTS = {
    "STYLE": "explorer.css",
    "MATHS": "maths.js",
    "BEST_OF": "best_of.js",
    "SCRIPT": "explorer.js",
}


@dataclass(frozen=True)
class Explore:
    """Write a page that shows the bias and variance of the rules for a distribution of your choice.

    The page works in any browser, without a network or a server.
    """

    out: Path = Path("swor-explorer.html")
    """the file to write; it must not exist"""
    open: bool = False
    """open the page in the default browser"""


def explore(settings: Explore) -> None:
    """Write the page, and open it if the settings say so."""
    out = settings.out.resolve()
    if out.exists():
        raise FileExistsError(
            f"{settings.out} exists; expected a new file, since files are never overwritten. Give "
            "another name with --out, or remove this file first."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    RunFolder(out.parent).write_text(out.name, page())
    print(f"The page is {settings.out}")
    if settings.open:
        import webbrowser

        webbrowser.open(out.as_uri())


def page() -> str:
    """Return the whole page, which includes its style and its scripts."""
    here = files(__name__)
    text = here.joinpath("explorer.html").read_text(encoding="utf-8")
    for place, name in PARTS.items():
        text = text.replace(f"/*{place}*/", here.joinpath(name).read_text(encoding="utf-8"))
    return text
