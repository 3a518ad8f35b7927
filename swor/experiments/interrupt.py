"""Requests to stop: at the end of a step, or at once but in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """Within it, a first SIGINT or SIGTERM sets ``requested``; a second of its kind acts as ever.

    >>> with Interrupt() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    >>> interrupt.requested
    True
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, self._before.pop(number))

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Within it, a SIGTERM is as a Ctrl-C: what a command has started ends with it.

    >>> try:
    ...     with terminable():
    ...         signal.raise_signal(signal.SIGTERM)
    ... except KeyboardInterrupt:
    ...     print("stopped")
    stopped
    """
    if threading.current_thread() is not threading.main_thread():  # others cannot set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
