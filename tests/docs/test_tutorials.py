"""The notebooks: their code runs, and they are committed with what it printed and drew."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from documentation import DOCS

plt = pytest.importorskip("matplotlib.pyplot")
NOTEBOOKS = sorted((DOCS / "tutorials").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_notebook_runs_and_draws(notebook: Path) -> None:
    plt.switch_backend("agg")
    names: dict[str, object] = {"__name__": notebook.stem}
    for number, cell in enumerate(code_cells(notebook)):
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)
    assert plt.get_fignums()
    plt.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_as_it_was_run(notebook: Path) -> None:
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any(output["output_type"] == "stream" for output in outputs)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_code_of_a_notebook_fits_its_column(notebook: Path) -> None:
    """On a screen of 1280 pixels, a hundred characters fit."""
    lines = "".join("".join([*cell["source"], "\n"]) for cell in code_cells(notebook))
    assert [line for line in lines.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_picture_of_a_notebook_says_what_it_shows(notebook: Path) -> None:
    texts = runpy.run_path(str(DOCS.parent / "site_hooks" / "notebooks.py"))["alternatives"](
        notebook
    )
    assert texts and all(len(text) > 20 for text in texts)
