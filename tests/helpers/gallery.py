"""The page of examples with what they print, written by `python tests/helpers/gallery.py docs/gallery.md`."""

import ast
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = {
    "routing_rl4co": "It needs an environment of its own: see [routing with rl4co](rl4co.md)."
}
INTRODUCTION = """# Examples

Scripts that run as they are, from the folder of the repository, with what they print. Each one is tested.
`make gallery` writes this page.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "".join(section(path) for path in sorted(EXAMPLES.glob("*.py")))


def section(path: Path) -> str:
    """The title of an example, what it shows, the command, and what it prints."""
    title, _, text = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")
    about = "\n\n".join(part.strip() for part in text.strip().split("\n\n"))
    shown = ELSEWHERE.get(path.stem) or f"```\n{output(path)}\n```"
    link = f"[`examples/{path.name}`](../examples/{path.name})"
    return f"\n## {title.rstrip('.:')}\n\n{link}\n\n{about}\n\n{shown}\n"


def output(path: Path) -> str:
    """What the example prints; a failure raises an error."""
    print(f"{path.name} …", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
