"""Every example runs, with small settings, and says what it should."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL: dict[str, Callable[[ModuleType], None]] = {
    "distributed": lambda example: example.main(3, 1, "loky", None),
    "evaluate_to_standard_error": lambda example: example.main(steps=200, questions=2),
    "language_model": lambda example: example.main(steps=1),
    "latent": lambda example: example.main(steps=8),
    "off_policy": lambda example: example.main(repeats=2000),
    "pass_at_m": lambda example: example.main(count=16),
    "policy": lambda example: example.main(steps=4, seeds=2),
    "recommend": lambda example: example.main(steps=1, repeats=2),
    "simulator": lambda example: example.main(repeats=5),
    "vae": lambda example: example.main(epochs=2),
}
TESTED_ELSEWHERE = {
    "compare_estimators": "diagnostics/test_compare.py",
    "routing_rl4co": "integrations/test_rl4co.py",
}
NEEDS = {
    "distributed": "joblib",
    "language_model": "transformers",
    "pass_at_m": "transformers",
    "recommend": "transformers",
    "vae": "sklearn",
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    for path in EXAMPLES.glob("*.py"):
        if path.stem not in SMALL:
            tests = Path(__file__).parent / TESTED_ELSEWHERE[path.stem]
            assert path.stem in tests.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    SMALL[name](load(name))
    assert capsys.readouterr().out


def test_the_vae_learns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    load("vae").main(epochs=3)
    first, _, last = map(float, re.findall(r"ELBO (\S+)", capsys.readouterr().out))
    assert last < first - 2.0


def test_distinct_actions_train_faster(capsys: pytest.CaptureFixture[str]) -> None:
    load("policy").main(steps=100, seeds=4)
    lines = capsys.readouterr().out.splitlines()
    less = re.findall(r"(-?\d+\.\d+) ± (\d+\.\d+)", lines[3])
    assert all(float(mean) > 2.0 * float(error) for mean, error in less[1:])
    distinct, independent = re.findall(r"(\d+\.\d+) ±", lines[4])
    assert float(distinct) < float(independent) / 2.0


@pytest.mark.parametrize("actions", [12, 30])
def test_a_constant_in_the_cost_matters_without_a_baseline(actions: int) -> None:
    pytest.importorskip("joblib")
    example = load("distributed")
    results = [example.train(seed, actions) for seed in range(3)]
    first, second = (
        {name: sum(result[title, name] for result in results) for name in example.NAMES}
        for title in example.SHIFTS
    )
    assert second["sum_and_sample"] > 2.0 * first["sum_and_sample"]
    assert max(second, key=second.get) == "sum_and_sample"
    assert second["unordered_set"] == pytest.approx(first["unordered_set"], rel=1e-6)


def test_temperature_leaves_no_bias(capsys: pytest.CaptureFixture[str]) -> None:
    load("off_policy").main(repeats=4000)
    lines = re.findall(r"bias (\S+) \(noise (\S+)\)", capsys.readouterr().out)
    assert len(lines) == 4
    assert all(float(bias) < 3.0 * float(noise) for bias, noise in lines)


def test_pass_at_m_is_as_exact_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    load("pass_at_m").main()
    pattern = r"pass@\d (\S+) ± (\S+) for these prompts \(exact (\S+)\)"
    lines = re.findall(pattern, capsys.readouterr().out)
    assert len(lines) == 3
    for value, error, exact in lines:
        assert abs(float(value) - float(exact)) < 4.0 * float(error) < 0.06


def test_scoring_without_the_catalogue_is_biased(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    load("recommend").main(steps=0, repeats=40)
    lines = re.findall(r"bias (\S+) \(noise (\S+)\)", capsys.readouterr().out)
    (ours, noise), (common, common_noise) = ((float(b), float(n)) for b, n in lines)
    assert ours < 2.0 * noise and common > 3.0 * common_noise
