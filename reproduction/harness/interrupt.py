"""Signals that stop a run: at the end of a step, or at once as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn a first SIGINT or SIGTERM into a request to stop; a second one of its kind acts as usual.

    >>> with interruptible() as stop:
    ...     signal.raise_signal(signal.SIGINT)
    >>> stop.is_set()
    True
    """
    stop = threading.Event()

    def request(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])

    with _handling(request, signal.SIGINT, signal.SIGTERM) as before:
        yield stop


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does, so that a command can clean up.

    >>> try:
    ...     with terminable():
    ...         signal.raise_signal(signal.SIGTERM)
    ... except KeyboardInterrupt:
    ...     print("stopped")
    stopped
    """
    with _handling(signal.default_int_handler, signal.SIGTERM):
        yield


@contextmanager
def _handling(
    handler: Callable[[int, FrameType | None], Any], *numbers: int
) -> Iterator[dict[int, Any]]:
    """Handle signals, which only the main thread may do, and yield the handlers from before."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if main}
    try:
        yield before
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
