"""The process of one step, which ends as soon as the process that started it has ended."""

from __future__ import annotations

import os
import pickle
import sys
import threading


def main() -> None:
    """Run the step that the standard input holds."""
    run, out = pickle.load(sys.stdin.buffer)
    threading.Thread(target=end_with_parent, daemon=True).start()
    run(out)


def end_with_parent() -> None:
    """End this process when its parent closes the standard input, or has been killed."""
    # Nothing else is written to it, so that this returns at its end.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    main()
