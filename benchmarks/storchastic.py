"""The whole loss over that of Storchastic's unordered set estimator, in an environment of its own.

    python benchmarks/storchastic.py

Storchastic is installed from the package index into a temporary environment on top of this one; where
that is not possible, the benchmark says so and is left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import torch
from measure import report, timings

import swor

PACKAGE = "storchastic==0.3.7"
BATCH = 128


def environment(folder: Path) -> Path:
    """A new environment that sees the packages of this one; returns its interpreter."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    command = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", command], capture_output=True, text=True, check=True)
    here = sysconfig.get_path("purelib")
    line = f"import site; site.addsitedir({here!r})\n"
    (Path(packages.stdout.strip()) / "above.pth").write_text(line)
    return python


def install(python: Path) -> str:
    """Install the package; returns what went wrong, nothing if all went well."""
    constraints = Path(__file__).parent.parent / "constraints.txt"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    options = ["-qq", "--disable-pip-version-check", "-c", str(constraints), PACKAGE]
    done = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
    tried = subprocess.run([python, "-c", "import storch"], capture_output=True, text=True)
    failed = done if done.returncode else tried
    return failed.stderr.strip().splitlines()[-1] if failed.returncode else ""


def ours(logits: torch.Tensor, table: torch.Tensor, k: int) -> None:
    """The library."""
    logits.grad = None
    sample = swor.sample(torch.distributions.OneHotCategorical(logits=logits), k)
    cost = (sample.value * table.unsqueeze(-2)).sum(-1)
    swor.unordered_set(sample).loss(cost).mean().backward()


def theirs(logits: torch.Tensor, table: torch.Tensor, k: int) -> None:
    """Storchastic, with its default settings."""
    import storch

    logits.grad = None
    storch.reset()
    batched = storch.denote_independent(logits, 0, "batch")
    costs = storch.denote_independent(table, 0, "batch")
    method = storch.method.UnorderedSetEstimator("sample", k=k)
    value = method(torch.distributions.OneHotCategorical(logits=batched))
    storch.add_cost((value * costs).sum(-1), "cost")
    storch.backward()


def compare() -> None:
    """Ratios, in the environment that has both."""
    rows: list[dict[str, object]] = []
    for n in (10, 100, 1000):
        for k in (4, 8):
            logits, table = torch.randn(BATCH, n, requires_grad=True), torch.rand(BATCH, n)
            losses = {"ours": ours, "theirs": theirs}
            took = timings(
                {name: lambda f=f, x=(logits, table, k): f(*x) for name, f in losses.items()},
                repeats=20,
            )
            ratio = took["theirs"].median / took["ours"].median
            row: dict[str, object] = {"outcomes": n, "k": k, "ours ms": took["ours"].median * 1e3}
            rows.append(row | {"storchastic / ours": ratio})
    report(f"Loss of {PACKAGE} over ours, batch {BATCH}, float32", rows, "storchastic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    torch.set_num_threads(1)
    if parser.parse_args().inside:
        return compare()
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder))
        problem = install(python)
        if problem:
            print(f"left out: {PACKAGE} could not be installed ({problem})")
        else:
            subprocess.run([python, __file__, "--inside"], check=True)


if __name__ == "__main__":
    main()
