"""Every example runs, with small settings, and says what it should."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from problems import seeded
from torch import Tensor

import swor

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL: dict[str, Callable[[ModuleType], None]] = {
    "distributed": lambda example: example.main(3, 1, "loky", None),
    "language_model": lambda example: example.main(steps=1),
    "latent": lambda example: example.main(steps=8),
    "off_policy": lambda example: example.main(repeats=2000),
    "policy": lambda example: example.main(steps=4),
    "recommend": lambda example: example.main(steps=1, repeats=2),
    "vae": lambda example: example.main(epochs=2),
    "when_it_pays": lambda example: example.main(count=1),
}
TESTED_ELSEWHERE = {"compare_estimators": "test_diagnostics.py"}
NEEDS = {
    "distributed": "joblib",
    "language_model": "transformers",
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


def test_temperature_leaves_no_bias(capsys: pytest.CaptureFixture[str]) -> None:
    load("off_policy").main(repeats=4000)
    lines = re.findall(r"bias (\S+) \(noise (\S+)\)", capsys.readouterr().out)
    assert len(lines) == 4
    assert all(float(bias) < 3.0 * float(noise) for bias, noise in lines)


def test_scoring_without_the_catalogue_is_biased(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    load("recommend").main(steps=0, repeats=40)
    lines = re.findall(r"bias (\S+) \(noise (\S+)\)", capsys.readouterr().out)
    (ours, noise), (common, common_noise) = ((float(b), float(n)) for b, n in lines)
    assert ours < 2.0 * noise and common > 3.0 * common_noise


def test_when_it_pays_is_exact() -> None:
    """Variances by brute force: over all draws, and over all sets with their gradients written out."""
    example, k = load("when_it_pays"), 3
    log_p = torch.randn(5, generator=seeded(), dtype=torch.float64).mul(2).log_softmax(-1)
    cost, p = example.costs(5, 4, seeded()), log_p.exp()
    slopes = torch.eye(5, dtype=torch.float64) - p  # of log p by the logits
    draws = torch.cartesian_prod(*[torch.arange(5)] * k)
    sets = torch.combinations(torch.arange(5), k)
    weights = swor.unordered_set(swor.Sample(sets, log_p[sets]))
    for f, ours, theirs in zip(
        cost,
        example.variance_distinct(log_p, cost, k),
        example.variance_independent(log_p, cost, k),
        strict=True,
    ):
        apart = (f[draws] - (f[draws].sum(-1, keepdim=True) - f[draws]) / (k - 1)) / k
        found = total_variance(p[draws].prod(-1), apart, slopes[draws])
        assert abs(found - theirs) < 1e-12
        slope = weights.weight * (f[sets] - weights.baseline(f[sets]))
        chance = swor.log_prob_set(log_p[sets]).exp()
        assert abs(total_variance(chance, slope, slopes[sets]) - ours) < 1e-12
    distinct = torch.tensor([len(set(x)) for x in draws.tolist()]).double()
    share = 1.0 - (p[draws].prod(-1) * distinct).sum() / k
    assert abs(example.duplicates(log_p, k) - share) < 1e-12


def total_variance(chance: Tensor, factor: Tensor, slopes: Tensor) -> Tensor:
    """Of the gradients that samples of these chances give."""
    gradient = (factor.unsqueeze(-1) * slopes).sum(-2)
    mean = (chance.unsqueeze(-1) * gradient).sum(0)
    return (chance * (gradient - mean).square().sum(-1)).sum()
