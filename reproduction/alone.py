"""A command that stops when its parent has ended: ``python -m reproduction.alone COMMAND``."""

from __future__ import annotations

import os
import signal
import sys
import threading


def stop_with_parent() -> None:
    """Let this process receive SIGTERM when its parent closes the standard input, or has been killed."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)  # nothing is written to it, so that this returns at its end
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    from reproduction.cli import main

    stop_with_parent()
    sys.exit(main())
