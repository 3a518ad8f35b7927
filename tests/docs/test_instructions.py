"""Instructions of the pages, followed to the letter: a new sampling scheme, a new experiment."""

from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from documentation import DOCS, python_blocks
from proofs import DISTRIBUTIONS

import swor
from swor.diagnostics.all_samples import ENUMERATIONS
from swor.estimators.estimator import lift
from swor.samplers.distributions import SAMPLERS, DistributionSampler, sample_domain

NEW = "antithetic"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the code of "Extending the library" defines."""
    names: dict[str, Any] = {"__name__": "extending"}
    for block in python_blocks(DOCS / "extending.md"):
        exec(compile(block, "extending.md", "exec"), names)
    return names


@pytest.fixture
def contract(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tests of the contract, in a library that has the scheme of the page and its rule."""
    sampler = partial(sample_domain, page["antithetic_sample"])
    monkeypatch.setitem(SAMPLERS, NEW, DistributionSampler(sampler, lists_domain=True))
    monkeypatch.setitem(ENUMERATIONS, NEW, page["all_antithetic"])
    entry = lift(page[NEW], NEW, unbiased=True, equation="Williams (1992)")  # type: ignore[arg-type]
    monkeypatch.setitem(swor.ESTIMATORS, NEW, entry)
    monkeypatch.setattr(swor, NEW, page[NEW], raising=False)
    return runpy.run_path(str(DOCS.parent / "tests" / "test_contract.py"))


def test_the_sampling_scheme_of_the_page_fulfils_the_contract(contract: dict[str, Any]) -> None:
    for name, parts in (
        ("test_bias_is_as_declared", [()]),
        (
            "test_shapes_dtypes_sizes_and_evaluations",
            [(d, t) for d in DISTRIBUTIONS for t in (torch.float64, torch.float32, torch.float16)],
        ),
        (
            "test_low_entropy_leaves_no_nan",
            [(d, torch.float32) for d in ("categorical", "one_hots", "bernoullis")],
        ),
        ("test_a_seed_decides_everything", [()]),
        ("test_elements_of_a_batch_have_noise_of_their_own", [()]),
        ("test_a_name_is_that_of_its_function", [()]),
        ("test_an_estimator_without_state_is_its_own_module", [()]),
    ):
        for part in parts:
            contract[name](NEW, *part)


def test_a_training_command_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that "How a run flows" gives for a task of one's own, with its settings and names."""
    pytest.importorskip("accelerate")
    from toy_training import Toy, ToySettings

    from reproduction.harness.training import run

    call = re.findall(r"`(run\(lambda: .*?\))`", (DOCS / "runs.md").read_text(encoding="utf-8"))
    assert len(call) == 1
    monkeypatch.chdir(tmp_path)
    settings = ToySettings(epochs=1, cpu=True, out=tmp_path / "folder")
    eval(call[0], {"run": run, "YourTask": lambda settings: Toy(), "settings": settings})
    assert (tmp_path / "folder" / "model.safetensors").exists()
