"""The layout: imports point downwards, chains of imports are short, private modules have an underscore."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from documentation import python_blocks

import swor
from reproduction.cli import commands

ROOT = Path(__file__).parent.parent
EXPERIMENTS = ("bernoulli", "vae", "tsp", "lm", "pronunciation")
LAYERS = [
    ["swor._checks"],
    ["swor.math"],
    ["swor.types"],
    ["swor.samplers"],
    ["swor.rules"],
    ["swor.estimators"],
    ["swor.diagnostics"],
    ["swor"],
    ["swor.integrations"],
    ["reproduction"],
    ["reproduction.harness"],
    [f"reproduction.{name}" for name in EXPERIMENTS],
    [
        *("reproduction.best_of", "reproduction.control_variates"),
        *("reproduction.rl4co", "reproduction.when_it_pays"),
    ],
    ["reproduction.claims"],
    ["reproduction.answers"],
    ["reproduction.figures"],
    ["reproduction.reproduce"],
    ["reproduction.cli"],
    ["reproduction.__main__", "reproduction.alone"],
]
"""From the bottom to the top. A package imports from itself and from the rows below its own."""

LONGEST_CHAIN = 14  # of modules of swor that import one another
MOST_MODULES = 95  # of the wheel, besides the __init__ of packages
REACHES_INSIDE = {
    # The bias of tours is tested by the statistic of swor.compare, with blocks that it keeps in a file.
    ("reproduction/harness/measurements.py", "swor.diagnostics._bias"),
    # A measurement that takes days continues the running sums of swor.gradient_moments.
    ("reproduction/harness/measurements.py", "swor.diagnostics._streaming"),
}
"""Imports of private modules from outside the library."""

Graph = Mapping[str, set[str]]


@cache
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


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imports(tree(path), known) - {name} for name, path in known.items()}


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


def longest_chain(edges: Graph) -> list[str]:
    """The longest list of modules of swor each of which imports the next."""
    longest: dict[str, list[str]] = {}
    for module in TopologicalSorter(edges).static_order():
        below = [longest[target] for target in edges.get(module, ())]
        longest[module] = [module, *max(below, key=len, default=[])]
    return max((longest[name] for name in edges if name.split(".")[0] == "swor"), key=len)


def is_private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split("."))


def defined(module: ast.Module) -> set[str]:
    """The names that a module defines at its top level."""
    names = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@cache
def public_names() -> set[str]:
    """The names in ``__all__`` of the library and its integrations, and the types that these return."""
    names = set(swor.__all__)
    for path in (ROOT / "swor" / "integrations").glob("*/__init__.py"):
        for node in tree(path).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names |= set(ast.literal_eval(node.value))
    returned = {
        name.id
        for path in modules().values()
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef) and node.name in names and node.returns is not None
        for name in ast.walk(node.returns)
        if isinstance(name, ast.Name)
    }
    return names | returned


def should_be_private(module: str, names: set[str]) -> bool:
    """Whether a module without an underscore has nothing that a reader is sent to."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    named = module in page or f"{module.replace('.', '/')}.py" in page
    return not is_private(module) and not named and not names & public_names()


def library() -> Iterator[tuple[str, Path]]:
    """The modules of the wheel, besides the ``__init__`` of packages."""
    for name, path in modules().items():
        if name.startswith("swor.") and path.name != "__init__.py":
            yield name, path


def reaching_inside(source: str, known: Mapping[str, Path]) -> set[str]:
    """The private modules of the library that Python code imports."""
    return {m for m in imports(ast.parse(source), known) if m.startswith("swor.") and is_private(m)}


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


def test_chains_of_imports_are_short() -> None:
    chain = longest_chain(graph())
    assert len(chain) <= LONGEST_CHAIN, " -> ".join(chain)


def test_a_long_chain_would_be_found() -> None:
    edges = {"swor.a": {"swor.b", "swor.c"}, "swor.b": {"swor.c"}, "swor.c": set()}
    assert longest_chain(edges) == ["swor.a", "swor.b", "swor.c"]


def test_the_wheel_has_few_modules() -> None:
    assert 50 < len(dict(library())) <= MOST_MODULES


def test_a_module_without_an_underscore_is_somebodys_business() -> None:
    wrong = [name for name, path in library() if should_be_private(name, defined(tree(path)))]
    assert not wrong, "no public name: begin the names of these modules with an underscore"


def test_a_private_module_without_an_underscore_would_be_found() -> None:
    source = ast.parse("LIMIT: int = 3\nOTHER = 4\ndef helper(): ...\nclass Thing: ...")
    assert defined(source) == {"LIMIT", "OTHER", "helper", "Thing"}
    assert should_be_private("swor.samplers.helpers", {"helper"})
    assert not should_be_private("swor.samplers._helpers", {"helper"})
    assert not should_be_private("swor._samplers.helpers", {"helper"})
    assert not should_be_private("swor.samplers.categorical", {"gumbel_top_k", "helper"})
    assert not should_be_private(
        "swor.diagnostics.comparison", {"Comparison"}
    )  # compare returns it


def test_only_the_library_imports_its_private_modules() -> None:
    found = {
        (str(path.relative_to(ROOT)), module)
        for folder in ("reproduction", "docs", "examples", "benchmarks")
        for path in (ROOT / folder).rglob("*")
        for source in ([path.read_text("utf-8")] if path.suffix == ".py" else python_blocks(path))
        for module in reaching_inside(source, modules())
    }
    assert found == REACHES_INSIDE


def test_an_import_of_a_private_module_would_be_found() -> None:
    known = {"swor.samplers": ROOT, "swor.samplers._race": ROOT, "swor.types": ROOT}
    private = {"swor.samplers._race"}
    assert reaching_inside("from swor.samplers._race import gumbel_like", known) == private
    assert reaching_inside("from swor.samplers import _race", known) == private
    assert reaching_inside("import swor.samplers._race as race", known) == private
    assert reaching_inside("from swor.types import Sample", known) == set()


def test_imports_for_type_checkers_count() -> None:
    source = "if TYPE_CHECKING:\n    from swor.samplers import a\ndef f():\n    import swor.types\n"
    known = {"swor.samplers.a": ROOT, "swor.types": ROOT, "swor.samplers": ROOT}
    assert imports(ast.parse(source), known) == {"swor.samplers.a", "swor.types"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_have_one_shape(name: str) -> None:
    files = {path.stem for path in (ROOT / "reproduction" / name).glob("*.py")}
    assert files >= {"__init__", "settings", "task", "figures", "command"}
    assert files & {"problem", "model"}
    homes = [c.__module__ for c in commands() if c.__module__.startswith(f"reproduction.{name}.")]
    assert set(homes) == {f"reproduction.{name}.command"}
