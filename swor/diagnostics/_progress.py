"""A progress bar on the terminal: that of rich if it is installed, otherwise plain lines."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[str, int], None]
"""From the name of what is being measured and the number of further estimates."""


@contextmanager
def progress_bar(total: int, *, show: bool) -> Iterator[Advance]:
    """Show how many of all estimates are measured on the standard error stream, if that is a terminal."""
    if not (show and sys.stderr.isatty()):
        yield lambda name, estimates: None
        return
    try:
        bars, consoles = map(importlib.import_module, ("rich.progress", "rich.console"))
    except ModuleNotFoundError:
        yield _lines(total)
        return
    with bars.Progress(console=consoles.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda name, n: bar.update(task, advance=n, description=name)


def _lines(total: int) -> Advance:
    """Return a function that prints a line whenever another estimator begins."""
    done, current = 0, ""

    def advance(name: str, estimates: int) -> None:
        nonlocal done, current
        if name != current:
            print(f"{name}: after {done} of {total} estimates", file=sys.stderr, flush=True)
        done, current = done + estimates, name

    return advance
