"""The layout of the package: imports point downwards, without cycles, and experiments have one shape."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from reproduction.cli import COMMANDS

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ("bernoulli", "vae", "tsp", "lm")
LAYERS = [
    ["swor._checks"],
    ["swor.types"],
    ["swor.math"],
    ["swor.samplers"],
    ["swor.rules"],
    ["swor.estimators"],
    ["swor.diagnostics"],
    ["swor"],
    ["swor.integrations"],
    ["reproduction"],
    ["reproduction.harness"],
    [f"reproduction.{name}" for name in EXPERIMENTS],
    ["reproduction.best_of"],
    ["reproduction.claims"],
    ["reproduction.reproduce"],
    ["reproduction.cli"],
    ["reproduction.__main__"],
]
"""From the bottom to the top. A package imports from itself and from the rows below its own."""

Graph = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    found = {}
    for package in ("swor", "reproduction"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(tree: ast.AST, known: Mapping[str, Path]) -> set[str]:
    """The modules of the package that a file imports, anywhere in it, for type checkers too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in known else str(node.module) for name in inner}
    return names & set(known)


def graph() -> dict[str, set[str]]:
    known = modules()
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in known.items()}
    return {name: imports(tree, known) - {name} for name, tree in trees.items()}


def cycle(edges: Graph) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def package(module: str) -> str:
    """The longest name in LAYERS that a module is in; top-level modules must be listed themselves."""
    listed = [name for row in LAYERS for name in row]
    fitting = [name for name in listed if module == name or module.startswith(f"{name}.")]
    assert fitting and (fitting not in (["swor"], ["reproduction"]) or module in fitting), (
        f"{module} has no layer"
    )
    return max(fitting, key=len)


def upward(edges: Graph) -> list[str]:
    height = {name: i for i, row in enumerate(LAYERS) for name in row}
    pairs = [(a, b, package(a), package(b)) for a, targets in edges.items() for b in targets]
    return [f"{a} imports {b}" for a, b, p, q in pairs if p != q and height[p] <= height[q]]


def test_there_is_no_import_cycle() -> None:
    assert cycle(graph()) == []


def test_imports_point_downwards() -> None:
    assert upward(graph()) == []


def test_a_cycle_and_an_upward_import_would_be_found() -> None:
    a, b, c = "swor.samplers.a", "swor.samplers.b", "swor.estimators.c"
    assert cycle({a: {b}, b: set()}) == []
    assert set(cycle({a: {b}, b: {a}})) == {a, b}
    assert upward({c: {a}, a: {b}}) == []
    assert upward({a: {c}}) == [f"{a} imports {c}"]
    assert upward({"reproduction.vae.task": {"reproduction.tsp.task"}}) != []


def test_imports_for_type_checkers_count() -> None:
    source = "if TYPE_CHECKING:\n    from swor.samplers import a\ndef f():\n    import swor.types\n"
    known = {"swor.samplers.a": ROOT, "swor.types": ROOT, "swor.samplers": ROOT}
    assert imports(ast.parse(source), known) == {"swor.samplers.a", "swor.types"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_have_one_shape(name: str) -> None:
    files = {path.stem for path in (ROOT / "reproduction" / name).glob("*.py")}
    assert files >= {"__init__", "settings", "task", "figures", "command"}
    assert files & {"problem", "model"}
    commands = [c.function for c in COMMANDS.values() if f".{name}." in c.function]
    assert commands
    assert all(c.startswith(f"reproduction.{name}.command:") for c in commands)
