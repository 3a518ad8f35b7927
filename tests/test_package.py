"""The package: its public names, its imports, its README."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from readme_example import first_example
from readme_table import cite, documented, name_link, table

import swor

ROOT = Path(__file__).parent.parent

CONTRACT = [
    *("Sample", "Weights", "ESTIMATORS", "SequenceModel", "Factorized"),
    *("log_prob_ordered", "log_prob_set", "leave_one_out", "murthy_variance"),
    *("gumbel_top_k", "with_replacement", "top_k_and_sample", "sample"),
    *("stochastic_beam_search", "beam_search", "ancestral_sample"),
    *("single_sample", "rloo", "unordered_set", "sum_and_sample", "raj", "risk"),
    *("importance_weighted", "normalized_importance_weighted"),
    *("exact", "gradient_moments", "compare"),
]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_is_public(name):
    assert name in swor.__all__ and hasattr(swor, name)


def test_the_core_imports_torch_alone():
    code = (
        "import sys, torch; before = set(sys.modules); import swor; "
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


def test_the_public_names_are_listed_once_and_sorted() -> None:
    assert len(set(swor.__all__)) == len(swor.__all__)
    assert all(hasattr(swor, name) for name in swor.__all__)


def test_a_function_can_be_compiled_after_the_import():
    code = "import swor, torch; f = lambda x: swor.leave_one_out(x); "
    code += "g = torch.compile(f, fullgraph=True, backend='eager'); "
    code += "print(g(torch.tensor([0.2, 0.3]).log()).shape)"
    assert "torch.Size([2])" in said(code)


def test_importing_does_not_load_the_compiler():
    code = "import sys, swor; print('torch._dynamo' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
