"""The package: its public names, its imports, its README."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from readme_example import first_example
from readme_table import cite, documented, name_link, table

import swor
from swor import public

ROOT = Path(__file__).parent.parent

CONTRACT = [
    *("Sample", "Weights", "ESTIMATORS", "SequenceModel", "Factorized"),
    *("log_prob_ordered", "log_prob_set", "leave_one_out", "murthy_variance"),
    *("gumbel_top_k", "with_replacement", "top_k_and_sample", "sample"),
    *("stochastic_beam_search", "beam_search", "ancestral_sample"),
    *("single_sample", "reinforce", "unordered_set", "sum_and_sample", "raj", "risk"),
    *("importance_weighted", "normalized_importance_weighted"),
    *("exact", "gradient_moments", "compare"),
]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_is_public(name):
    assert name in swor.__all__ and hasattr(swor, name)


def test_the_core_imports_torch_alone():
    code = (
        "import sys, torch; before = set(sys.modules); import swor.public; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "third = {'numpy','scipy','pandas','matplotlib','rich','tyro','accelerate','transformers',"
        "'sklearn','joblib','tensorboard','highspy'}; print(sorted(new & third))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_readme_example_runs(capsys):
    exec(compile(first_example(ROOT / "README.md"), "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_the_readme_lists_every_estimator():
    assert table() in (ROOT / "README.md").read_text("utf-8")


def test_the_table_is_strict():
    with pytest.raises(KeyError):
        name_link("an estimator without a page", documented())
    for citation in ("eq:label", "Raj 1956", "Raj (1956), Murthy (1957)"):
        with pytest.raises(ValueError, match="expected the form"):
            cite(citation)


def said(code: str) -> str:
    """What a fresh process of Python says, warnings included."""
    command = [sys.executable, "-W", "always", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return out.stdout + out.stderr


def test_torch_is_loaded_by_the_first_name_that_is_used():
    code = "import sys, swor; print('torch' in sys.modules); swor.Sample; print('torch' in sys.modules)"
    assert said(code).split() == ["False", "True"]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_line_answers_without_torch(option):
    code = (
        f"import sys; from swor.cli import main; main(['{option}']); print('torch' in sys.modules)"
    )
    assert said(code).splitlines()[-1] == "False"


def test_names_are_those_of_the_public_module():
    assert swor.__all__ is public.__all__
    assert {*public.__all__, "__version__"} <= set(dir(swor))
    assert all(getattr(swor, name) is getattr(public, name) for name in public.__all__)
    with pytest.raises(AttributeError, match="module 'swor' has no attribute 'nothing'"):
        swor.nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from swor import nothing  # noqa: F401
    names: dict[str, object] = {}
    exec("from swor import *", names)
    assert names.keys() >= set(public.__all__)


def test_modules_of_the_package_are_there():
    code = (
        "import swor; print(swor.estimators.learned.warm_up.__name__, hasattr(swor, '__wrapped__'))"
    )
    assert said(code).split() == ["warm_up", "False"]


def test_a_name_can_be_compiled_before_it_was_used():
    code = "import swor, torch; f = lambda x: swor.leave_one_out(x); "
    code += "g = torch.compile(f, fullgraph=True, backend='eager'); "
    code += "print(g(torch.tensor([0.2, 0.3]).log()).shape)"
    assert "torch.Size([2])" in said(code)


def test_nothing_is_said_without_numpy():
    hidden, used = (
        "import sys; sys.modules['numpy'] = None; ",
        "; import torch; torch.tensor([1.0])",
    )
    assert "initialize NumPy" in said(hidden + "import torch" + used)
    for code in ("import swor; swor.Sample", "from swor import Sample", "import swor.types"):
        assert "initialize NumPy" not in said(hidden + code + used)


def test_importing_does_not_load_the_compiler():
    code = "import sys, swor.public; print('torch._dynamo' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
