"""Run the first Python block of a README: `python readme_example.py README.md`."""

import re
import sys
from pathlib import Path


def first_example(readme: Path) -> str:
    """The code of the first Python block of `readme`."""
    block = re.search(r"^```python\n(.*?)^```", readme.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    if block is None:
        raise ValueError(f"{readme} has no block that starts with ```python")
    return block[1]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    exec(compile(first_example(path), str(path), "exec"), {"__name__": "__main__"})
