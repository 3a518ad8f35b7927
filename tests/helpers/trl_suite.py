"""TRL's tests of its RLOOTrainer, with UnorderedSetTrainer in its place.

python tests/helpers/trl_suite.py FOLDER [--source CHECKOUT] [-k EXPRESSION] [--vocabulary TOKENS]

The tests are of the installed version, from a clone of its tag, or of the checkout that is given. Models
and data are made in the folder. A test that passes with TRL's trainer has to pass with ours, or to be
refused for a reason. The time goes into the logits, so that the vocabulary is small by default. Tests with
mask_truncated in their names need the 151646 tokens of Qwen2: one names some of these tokens, and the other
expects that no completion of a random model ends.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

HELPERS = Path(__file__).resolve().parent
REPOSITORY = "https://github.com/huggingface/trl"
TESTS = "tests/test_rloo_trainer.py"
REFUSALS = {
    "test_train_with_generation_kwargs": "asks for num_beams=2, which is no sampling from the model",
    "test_train_with_mask_truncated_completions": "puts other completions in the place of those of generate, "
    "which is not called; tests/integrations/test_trl_metrics.py has masked completions",
    "TestRLOOTrainerVLM": "has prompts with images",
}


def checkout(folder: Path) -> Path:
    """A clone of the tag of the installed version."""
    source = folder / f"trl-{version('trl')}"
    if not source.exists():
        clone = ["git", "clone", "-q", "--depth", "1", "--branch", f"v{version('trl')}"]
        subprocess.run([*clone, REPOSITORY, str(source)], check=True)
    return source


def outcomes(log: Path, source: Path, *options: str) -> dict[str, str]:
    """The outcome of every test; what pytest prints goes to the log, whose folder the tests run in."""
    command = [sys.executable, "-m", "pytest", str(source / TESTS), "-q", "-rA", "--tb=line"]
    command += ["-p", "no:cacheprovider", f"--rootdir={source}", "-W", "ignore"]
    command += ["-p", "trl_suite_cpu", *options]
    paths = [str(HELPERS.parents[1]), str(HELPERS), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "ACCELERATE_USE_CPU": "true"}
    with log.open("w") as printed:
        subprocess.run(command, cwd=log.parent, env=environment, stdout=printed, stderr=printed)
    line = re.compile(r"^(PASSED|FAILED|ERROR) \S*::(\w+::\S+)", re.M)
    found = {name: outcome for outcome, name in line.findall(log.read_text())}
    if not found:
        raise RuntimeError(f"no test ran, see {log}")
    return found


def reason(name: str) -> str | None:
    parts = re.split(r"::|\[", name)
    return next((why for what, why in REFUSALS.items() if what in parts), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", type=Path)
    parser.add_argument("-k", dest="expression", default="")
    parser.add_argument("--vocabulary", type=int, default=8192)
    given = parser.parse_args()
    folder = given.folder.resolve() / str(given.vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    source = (given.source or checkout(folder.parent)).resolve()
    if not (folder / "trl-internal-testing").exists():
        maker = HELPERS / "trl_suite_models.py"
        command = [sys.executable, str(maker), str(folder), str(source), str(given.vocabulary)]
        subprocess.run(command, check=True)
    only = ["-k", given.expression]
    theirs = outcomes(folder / "theirs.log", source, *only)
    ours = outcomes(folder / "ours.log", source, *only, "-p", "trl_suite_swap")
    passing = [name for name, outcome in theirs.items() if outcome == "PASSED"]
    failing = [name for name in passing if ours.get(name) != "PASSED"]
    print(
        f"{len(passing)} tests pass with RLOOTrainer, {len(passing) - len(failing)} of them with ours"
    )
    for name in failing:
        print(f"  {name}: {reason(name) or 'NOT EXPECTED'}")
    sys.exit(any(reason(name) is None for name in failing))


if __name__ == "__main__":
    main()
