"""Signals that stop a run: at the end of a step, or at once as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Interrupt:
    """Whether a stop was requested."""

    requested: bool = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Turn a first SIGINT or SIGTERM into a request to stop; a second one of its kind acts as usual.

    >>> with interruptible() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    >>> interrupt.requested
    True
    """
    interrupt, before = Interrupt(), dict[int, Any]()

    def request(number: int, frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(number, before.pop(number))

    if _may_set_handlers():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, request)
    try:
        yield interrupt
    finally:
        while before:
            signal.signal(*before.popitem())


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
    if not _may_set_handlers():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _may_set_handlers() -> bool:
    return threading.current_thread() is threading.main_thread()
