"""The page of figures holds what the benchmarks wrote, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
WRITE = """
import sys
sys.path.insert(0, sys.argv[1])
import measure, page
measure.report("A title", [{"k": 4, "ms": 0.123456}, {"k": 8, "other": "text"}], "samplers")
sys.argv = ["page", "--output", sys.argv[2]]
page.main()
"""


def test_figures_come_from_the_tables(tmp_path: Path) -> None:
    output = tmp_path / "performance.md"
    command = [sys.executable, "-c", WRITE, str(BENCHMARKS), str(output)]
    environment = {"SWOR_BENCHMARKS": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    text = output.read_text()
    assert "| k | ms | other |\n| ---: | ---: | ---: |\n| 4 | 0.123 |  |\n| 8 |  | text |" in text
    assert "A title" in text and "cores" in text
    assert text.count("## ") == 1


def test_without_tables_there_is_no_page(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "page.py"), "--output", str(tmp_path / "page.md")]
    environment = {"SWOR_BENCHMARKS": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and "Run it first" in done.stderr
    assert not (tmp_path / "page.md").exists()
