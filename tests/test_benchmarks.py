"""The benchmarks run, and the page of figures holds what they wrote and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
WRITE = """
import sys
sys.path.insert(0, sys.argv[1])
import measure, page
measure.report("A title", [{"k": 4, "ms": 0.123456}, {"k": 8, "other": "text"}], "samplers")
sys.argv = ["page", "--output", sys.argv[2]]
page.main()
"""
RUN_ONCE = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import measure

def once(functions, **given):
    for function in functions.values():
        function()
    return {name: measure.Timing(1.0, 0.0) for name in functions}

measure.timings = once
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SMALLEST = {
    "best_of": "",
    "completions": "--prompt 4 --long 8 --k 2 --new-tokens 4 --batch-size 1 --symbols 500",
    "control": "",
    "estimators": "--outcomes 100",
    "operations": "",
    "readme": "",
    "large": "--outcomes 1000 --k 2",
    "ratios": "--batch 100",
    "samplers": "",
    "sequence": "--prompt 4 --k 2 --new-tokens 4 --batch-size 1",
    "soak": "--minutes 0.02",
    "tsp": "--nodes 5 --batch-size 2 --k 2 --repeats 1",
    "vae": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_with_its_smallest_setting(name: str, tmp_path: Path) -> None:
    script = [str(BENCHMARKS / f"{name}.py"), *SMALLEST[name].split()]
    command = [sys.executable, "-c", RUN_ONCE, str(BENCHMARKS), *script]
    environment = {"SWOR_BENCHMARKS": str(tmp_path), "OMP_NUM_THREADS": "1"}
    root = BENCHMARKS.parent
    subprocess.run(command, env=os.environ | environment, cwd=root, check=True, capture_output=True)
    assert list(tmp_path.glob("*.csv"))


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
