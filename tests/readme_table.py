"""Write the README's table of estimators from the registry: `python readme_table.py README.md`."""

import re
import sys
from pathlib import Path

import swor

HEADER = "| name | unbiased | equation or citation |\n| --- | --- | --- |\n"
BLOCK = re.compile(re.escape(HEADER) + r"(\|.*\n)+")


def table() -> str:
    """One row for every entry of ESTIMATORS."""
    rows = [
        f"| `{name}` | {'yes' if entry.unbiased else 'no'} | {entry.equation} |\n"
        for name, entry in swor.ESTIMATORS.items()
    ]
    return HEADER + "".join(rows)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(BLOCK.sub(lambda _: table(), path.read_text("utf-8")), "utf-8")
