"""Every example runs, with small settings, and shows what it promises."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import gallery
import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {
    "distributed": "joblib",
    "language_model": "transformers",
    "pass_at_m": "transformers",
    "pronunciation": "g2p_en",
    "recommend": "transformers",
    "vae": "sklearn",
}
TESTED = {"routing_rl4co"}  # by tests/integrations/test_rl4co.py, in an environment of its own


def of(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a test the module of an example as its argument ``example``."""
    TESTED.add(name)
    return pytest.mark.parametrize("example", [name], indirect=True)


@pytest.fixture
def example(request: pytest.FixtureRequest) -> ModuleType:
    name: str = request.param
    if name in NEEDS and find_spec(NEEDS[name]) is None:  # importing g2p_en would download data
        pytest.skip(f"the example {name} needs the package {NEEDS[name]}, which is not installed")
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def numbers(capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[float]]:
    """The numbers in the printed text that a pattern finds, since the last call."""
    return lambda pattern: [float(x) for x in re.findall(pattern, capsys.readouterr().out)]


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


@of("evaluate_to_standard_error")
def test_fewer_distinct_runs_reach_a_standard_error(example: ModuleType, numbers) -> None:
    example.main(steps=200, questions=2)
    independent, distinct = numbers(r"(\S+) runs per question")
    assert distinct < independent / 4.0


@of("language_model")
def test_the_language_model_reports_its_groups(example: ModuleType, numbers) -> None:
    example.main(steps=1)
    reward, error, mass, duplicates = numbers(r"(\d+\.\d+)(?= ±| per| of|,)")
    assert (
        0.0 <= reward <= 1.0 and 0.0 < error < 1.0 and 0.0 < mass < 1.0 and 0.0 < duplicates < 4.0
    )


@of("latent")
def test_the_latent_model_learns(example: ModuleType, numbers) -> None:
    example.main(steps=8)
    errors = numbers(r"step \d: error (\S+),")
    assert len(errors) == 4 and errors[-1] < 0.8 * errors[0]


@of("simulator")
def test_distinct_runs_of_a_simulator_are_more_exact(example: ModuleType, numbers) -> None:
    example.main(repeats=5)
    independent, distinct = numbers(r"root mean squared error (\S+)")
    assert distinct < independent / 2.0


@of("pronunciation")
def test_words_are_pronounced_and_evaluated(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(steps=1, count=100)
    lines = re.findall(r"pass@\d (\S+) ± (\S+) \(exact (\S+)\)", capsys.readouterr().out)
    found = [tuple(map(float, line)) for line in lines]
    assert len(found) == 3 and found[0][2] > 0.4
    assert all(abs(mean - exact) < 5.0 * error for mean, error, exact in found)


@of("vae")
def test_the_vae_learns(example: ModuleType, numbers) -> None:
    example.main(epochs=3)
    first, _, last = numbers(r"ELBO (\S+)")
    assert last < first - 2.0


@of("policy")
def test_distinct_actions_train_faster(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(steps=100, seeds=4)
    lines = capsys.readouterr().out.splitlines()
    less = re.findall(r"(-?\d+\.\d+) ± (\d+\.\d+)", lines[3])
    assert all(float(mean) > 2.0 * float(error) for mean, error in less[1:])
    distinct, independent = re.findall(r"(\d+\.\d+) ±", lines[4])
    assert float(distinct) < float(independent) / 2.0


@of("distributed")
def test_runs_in_other_processes_have_their_costs_shifted(example: ModuleType, numbers) -> None:
    example.main(3, 1, "loky", None)
    ours, rloo, plain, *shifted = numbers(r": (\d\.\d+) ±")
    assert shifted[:2] == [ours, rloo]  # a baseline takes the constant away
    assert shifted[2] > 2.0 * plain


@of("distributed")
@pytest.mark.parametrize("actions", [12, 30])
def test_a_constant_in_the_cost_matters_without_a_baseline(
    example: ModuleType, actions: int
) -> None:
    results = [example.train(seed, actions) for seed in range(3)]
    first, second = (
        {name: sum(result[title, name] for result in results) for name in example.NAMES}
        for title in example.SHIFTS
    )
    assert second["sum_and_sample"] > 2.0 * first["sum_and_sample"]
    assert max(second, key=second.get) == "sum_and_sample"
    assert second["unordered_set"] == pytest.approx(first["unordered_set"], rel=1e-6)


@of("off_policy")
def test_temperature_leaves_no_bias(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(repeats=4000)
    lines = re.findall(r"bias (\S+) \(noise (\S+)\)", capsys.readouterr().out)
    assert len(lines) == 4
    assert all(float(bias) < 3.0 * float(noise) for bias, noise in lines)


@of("pass_at_m")
def test_pass_at_m_is_as_exact_as_it_says(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main()
    pattern = r"pass@\d (\S+) ± (\S+) for these prompts \(exact (\S+)\)"
    lines = re.findall(pattern, capsys.readouterr().out)
    assert len(lines) == 3
    for value, error, exact in lines:
        assert abs(float(value) - float(exact)) < 4.0 * float(error) < 0.06


@of("recommend")
def test_scoring_without_the_catalogue_is_biased(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(steps=1, repeats=40, seeds=1)
    lines = re.findall(r"bias (\S+) \(noise (\S+)\)", capsys.readouterr().out)
    (ours, noise), (common, common_noise) = ((float(b), float(n)) for b, n in lines)
    assert ours < 2.0 * noise and common > 3.0 * common_noise


@of("recommend")
def test_both_ways_of_scoring_are_trained_on_the_same_users(example: ModuleType) -> None:
    shop, seen = example.Shop(example.seeded(0)), {}
    for name, way in (("ours", example.loss), ("common", example.common_loss)):
        seen[name] = []

        def watched(model, shop, prompts, rating, k, way=way, users=seen[name]):
            users.append(prompts)
            return way(model, shop, prompts, rating, k)

        example.train(shop, watched, 2, seed=3)
    assert all(torch.equal(*pair) for pair in zip(seen["ours"], seen["common"], strict=True))
    assert not torch.equal(*seen["ours"])


@of("compare_estimators")
@pytest.mark.slow
def test_the_comparison_recommends(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    assert "Use unordered_set with k = 4" in capsys.readouterr().out


def test_the_pictures_of_the_gallery_show_what_its_page_prints() -> None:
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text("utf-8")
    sections = re.findall(r"\[`examples/(\w+)\.py`\].*?```\n(.*?)\n```", page, re.DOTALL)
    drawn = {name: found for name, text in sections if len(found := gallery.LINE.findall(text)) > 2}
    assert set(drawn) == {path.stem for path in gallery.PICTURES.iterdir()}
    for name, found in drawn.items():
        assert f"(assets/gallery/{name}.svg)" in page
        assert (gallery.PICTURES / f"{name}.svg").read_text("utf-8") == gallery.curve(found)
