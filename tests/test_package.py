"""The package: its contract, its imports, its README."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from estimator_table import cite, documented, name_link, table
from readme_example import first_example

import swor

ROOT = Path(__file__).parent.parent

CONTRACT = {
    "log_prob_ordered": "log_p, log_rest=None",
    "log_prob_set": "log_p, log_rest=None, *, method='auto'",
    "leave_one_out": "log_p, log_rest=None, *, second_order=False, method='auto'",
    "gumbel_top_k": "log_probs, k, *, allow_fewer=False, generator=None",
    "with_replacement": "log_probs, k, *, generator=None",
    "top_k_and_sample": "log_probs, k, *, m=1, summed=None, generator=None",
    "stochastic_beam_search": "model, k, *, allow_fewer=False, generator=None",
    "beam_search": "model, k, *, allow_fewer=False",
    "ancestral_sample": "model, k, *, generator=None",
    "sample": "dist, k, *, replacement=False, allow_fewer=False, generator=None",
    "single_sample": "sample",
    "rloo": "sample",
    "unordered_set": "sample",
    "sum_and_sample": "sample, *, m=1",
    "raj": "sample",
    "importance_weighted": "sample",
    "normalized_importance_weighted": "sample",
    "risk": "sample",
    "murthy_variance": "sample, cost",
    "best_of": "sample, m, *, largest=True",
    "exact": "f, dist",
}
"""The arguments of the functions that other code relies on; a change here breaks it."""


def arguments(function: object) -> str:
    """The arguments of a function with their defaults, without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))[1:-1]


@pytest.mark.parametrize("name", CONTRACT)
def test_a_function_takes_the_arguments_of_the_contract(name):
    assert arguments(getattr(swor, name)) == CONTRACT[name]


def test_samples_and_weights_have_the_fields_of_the_contract():
    fields = {"value", "log_p", "log_rest", "kappa", "scheme"}
    assert fields <= set(inspect.signature(swor.Sample).parameters)
    assert {"weight", "baseline_weights"} <= set(inspect.signature(swor.Weights).parameters)
    assert arguments(swor.Weights.mean) == arguments(swor.Weights.baseline) == "self, cost"
    assert arguments(swor.Weights.loss) == "self, cost, *, baseline='built-in', log_p=None"
    assert arguments(swor.BestOf.mean) == "self, f"
    assert arguments(swor.BestOf.loss) == "self, f, *, log_p=None"


def printed(code: str) -> str:
    """The output of a new process of Python, warnings included."""
    command = [sys.executable, "-W", "always", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return (out.stdout + out.stderr).strip()


def test_the_core_imports_torch_alone_and_no_compiler():
    code = "import sys, torch; before = set(sys.modules); import swor; "
    code += "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
    code += "print(new - set(sys.stdlib_module_names), 'torch._dynamo' in sys.modules)"
    assert printed(code) == "{'swor'} False"


def test_a_function_can_be_compiled_after_the_import():
    code = "import swor, torch; f = lambda x: swor.leave_one_out(x); "
    code += "g = torch.compile(f, fullgraph=True, backend='eager'); "
    code += "print(g(torch.tensor([0.2, 0.3]).log()).shape)"
    assert "torch.Size([2])" in printed(code)


def test_the_readme_example_learns(capsys):
    exec(compile(first_example(ROOT / "README.md"), "README.md", "exec"), {})
    cost, best = map(float, re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert best <= cost < best + 0.1  # 0.5 before training


def test_a_page_lists_every_estimator():
    assert table() in (ROOT / "docs" / "estimators" / "index.md").read_text("utf-8")


def test_the_readme_is_short_and_shows_what_its_example_prints(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 100
    exec(compile(first_example(ROOT / "README.md"), "README.md", "exec"), {})
    pattern = r"expected cost (\d\S+), best possible (\d\S+)\n"
    shown, printed = re.findall(pattern, text), re.findall(pattern, capsys.readouterr().out)
    for given, found in zip(shown[0], printed[0], strict=True):  # up to rounding elsewhere
        assert abs(float(given) - float(found)) < 0.02


NUMBERS = {
    r"as good as (\d+ to \d+) independent": (
        "results/tsp/best_of_k/20/answer.md",
        r"(\d+ to \d+) independent",
    ),
    r"(\d\.\d) times for \[tours\]": (
        "docs/when_it_pays.md",
        r"\| 44\.7 % \| (\d\.\d)",
    ),
    r"(\d\.\d) times that of `unordered_set` for a \[pronunciation": (
        "docs/when_it_pays.md",
        r"\| 45\S* % \| (\d\.\d)",
    ),
    r"RLOO \(.*?\) has (\d\.\d) times the variance": (
        "docs/when_it_pays.md",
        r"\| 25 % \| (\d\.\d) \|",
    ),
}


@pytest.mark.parametrize("claim", NUMBERS)
def test_a_number_of_the_readme_is_that_of_the_results(claim):
    file, source = NUMBERS[claim]
    given = re.findall(claim, (ROOT / "README.md").read_text("utf-8"))
    assert given
    assert given == re.findall(source, (ROOT / file).read_text("utf-8"))


COSTS = {  # in the README, in the page of measurements, and what may change when it is written again
    r"VAE takes (\S+) to": (r"\| 10\^20 \| unordered_set \| \S+ \| (\S+) \|", 0.1),
    r"VAE takes \S+ to (\S+) times": (r"\| 10\^2 \| unordered_set \| \S+ \| (\S+) \|", 0.1),
    r"travelling salesman (\S+) times": (r"\| unordered set \| \S+ \| (\S+) \|", 0.1),
    r"takes about (\d) times": (r"\| 4 \| \S+ \| \S+ \| (\S+) \| 35 \|", 0.5),
}


@pytest.mark.parametrize("claim", COSTS)
def test_a_cost_in_the_readme_is_one_that_was_measured(claim):
    source, margin = COSTS[claim]
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    (given,) = re.findall(claim, (ROOT / "README.md").read_text("utf-8"))
    assert float(given) == pytest.approx(float(re.findall(source, page)[0]), abs=margin)


@pytest.fixture
def built(monkeypatch):
    """The hook of the package build, without the package that calls it."""
    stand_in = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", stand_in)
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["CustomMetadataHook"]()
    hook.root = str(ROOT)

    def metadata():
        found = {}
        hook.update(found)
        return found

    return metadata


def test_the_package_index_gets_addresses(built, monkeypatch):
    monkeypatch.setenv("REPOSITORY_URL", "https://host.org/swor/")
    monkeypatch.setenv("SITE_URL", "https://site.org/")
    metadata = built()
    targets = re.findall(r"\]\(([^)\s]+)\)", metadata["readme"]["text"])
    assert all(target.startswith("https://") for target in targets)
    for target in (
        "raw/main/docs/assets/best_of_k.png",
        "blob/main/LICENSE",
        "actions/workflows/ci.yml",
    ):
        assert f"https://host.org/swor/{target}" in targets
    assert metadata["urls"]["Repository"] == "https://host.org/swor"
    assert metadata["urls"]["Documentation"] == "https://site.org/"


def test_without_addresses_the_readme_stays_as_it_is(built, monkeypatch):
    for variable in ("REPOSITORY_URL", "SITE_URL"):
        monkeypatch.delenv(variable, raising=False)
    metadata = built()
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text("utf-8")
    assert list(metadata["urls"]) == ["Paper"]


def test_the_table_is_strict():
    with pytest.raises(KeyError):
        name_link("an estimator without a page", documented())
    for citation in ("eq:label", "Raj 1956", "Raj (1956), Murthy (1957)"):
        with pytest.raises(ValueError, match="expected the form"):
            cite(citation)


def test_messages_name_packages_that_can_be_installed() -> None:
    """No release is on the index, so an error must not send anybody to its extras."""
    sources = [path for name in ("swor", "reproduction") for path in (ROOT / name).rglob("*.py")]
    assert not [path.name for path in sources if "pip install 'swor" in path.read_text("utf-8")]
