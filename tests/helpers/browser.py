"""Headless Chromium, where there is one, to look at pages as a reader does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=8000",
]
PROBE = """
<script>
window.addEventListener("error", (e) => { (window.failures ||= []).push(e.message); });
</script>
"""


def browser() -> str:
    """The path of a Chromium, or skip the test."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("there is no Chromium; install it to test pages in a browser")


def visit(page: Path, script: str, tmp_path: Path) -> tuple[str, str]:
    """Open a page, run a script in it, and return the text that it sets and what was logged.

    Args:
        page: the file.
        script: JavaScript that runs after the page's own; what it assigns to ``result`` is returned.
        tmp_path: for the browser's own files.
    """
    probe = (
        "<script>window.addEventListener('load', () => setTimeout(async () => {"
        f"let result; try {{ {script} }} catch (e) {{ result = 'error: ' + e; }}"
        "const out = document.createElement('pre'); out.id = 'probe';"
        "out.textContent = JSON.stringify([window.failures || [], result]);"
        "document.documentElement.replaceChildren(out); }, 300));</script>"
    )
    html = page.read_text(encoding="utf-8").replace(
        "<head>", f'<head><base href="{page.parent.as_uri()}/">{PROBE}', 1
    )
    probed = tmp_path / "probed.html"
    probed.write_text(
        html.replace("</body>\n</html>", probe + "</body>\n</html>"), encoding="utf-8"
    )
    command = [browser(), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, probed.as_uri()], capture_output=True, text=True, timeout=240, check=False
    )
    start = done.stdout.find('<pre id="probe">')
    assert start >= 0, done.stderr[-2000:]
    text = done.stdout[start + 16 : done.stdout.index("</pre>", start)]
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"), console
