"""The page of examples with what they print, written by `python tests/helpers/gallery.py docs/gallery.md`."""

import ast
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
ELSEWHERE = {
    "routing_rl4co": "It needs an environment of its own: see [routing with rl4co](rl4co.md)."
}
PICTURES = EXAMPLES.parent / "docs" / "assets" / "gallery"
LINE = re.compile(r"^(step|epoch) +(\d+):? +(\S+) ([\d.]+)", re.MULTILINE)
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
    shown = ELSEWHERE.get(path.stem)
    if shown is None:
        printed = output(path)
        shown = f"```\n{printed}\n```{picture(path.stem, printed)}"
    link = f"[`examples/{path.name}`](../examples/{path.name})"
    return f"\n## {title.rstrip('.:')}\n\n{link}\n\n{about}\n\n{shown}\n"


def picture(name: str, printed: str) -> str:
    """The picture of an output that shows a training run, which is written; nothing for other outputs."""
    found = LINE.findall(printed)
    if len(found) < 3:
        return ""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(curve(found), "utf-8")
    (time, _, what, _), *_ = found
    return f"\n\n![{what} against {time}s of training](assets/gallery/{name}.svg)"


def curve(found: list[tuple[str, str, str, str]]) -> str:
    """A number that was printed during training against the step, as SVG."""
    (time, first, what, _), *_, (_, last, _, _) = found
    x, y = ([float(row[i]) for row in found] for i in (1, 3))
    low, high = min(y), max(y)
    across = [70 + 330 * (a - x[0]) / (x[-1] - x[0]) for a in x]
    down = [150 - 120 * (b - low) / (high - low) for b in y]
    points = " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(across, down, strict=True))
    dots = "".join(
        f'<circle cx="{a:.0f}" cy="{b:.0f}" r="4"/>' for a, b in zip(across, down, strict=True)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 205" width="420" height="205" '
        'font-family="sans-serif" font-size="13" fill="#333">'
        '<rect width="420" height="205" fill="#fff"/>'
        f'<text x="10" y="18">{what}</text>'
        f'<text x="60" y="34" text-anchor="end">{high:g}</text>'
        f'<text x="60" y="154" text-anchor="end">{low:g}</text>'
        '<path d="M70 30V165H400" fill="none" stroke="#999"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2.5"/>'
        f'<g fill="#0072b2">{dots}</g>'
        f'<text x="70" y="184" text-anchor="middle">{first}</text>'
        f'<text x="400" y="184" text-anchor="middle">{last}</text>'
        f'<text x="235" y="198" text-anchor="middle">{time}</text></svg>\n'
    )


def output(path: Path) -> str:
    """What the example prints; a failure raises an error."""
    print(f"{path.name} …", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
