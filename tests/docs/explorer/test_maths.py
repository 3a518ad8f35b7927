"""The mathematics of the explorer: its JavaScript computes what the library computes.

The page shows the rules that its script has. The library may have more.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
import torch
from best_of_enumeration import covariance, distinct, independent
from documentation import DOCS
from torch.distributions import Categorical

import swor
from swor.diagnostics.enumeration import exact_moments
from swor.estimators.estimator import lift
from swor.estimators.registry import ESTIMATORS
from swor.rules.reinforce import rloo
from swor.types import Scheme

Problem = tuple[list[float], list[float], int]
Results = dict[str, dict[str, float]]

SCRIPTS = [DOCS / "explorer" / name for name in ("maths.js", "best_of.js")]
PROBLEMS: list[Problem] = [
    ([0.4, 0.25, 0.2, 0.1, 0.05], [1.0, -0.5, 2.0, 0.3, 4.0], k) for k in (1, 2, 3, 4, 5)
] + [([0.98, 0.01, 0.007, 0.003], [1.0, 3.0, -2.0, 0.5], k) for k in (2, 3)]


def run_script(function: str, calls: list[Any]) -> list[Any]:
    """Return what a function of the page's scripts returns for each call, computed in Node.js."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed; it is needed to check the explorer's mathematics")
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    call = (
        f"{scripts}\nconst calls = {json.dumps(calls)};"
        f"console.log(JSON.stringify(calls.map((x) => maths.{function}(...x)),"
        "(key, value) => value === Infinity ? 'inf' : value));"
    )
    done = subprocess.run([node, "-e", call], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def javascript() -> list[Results]:
    return run_script("exactMoments", PROBLEMS)


def in_library(name: str, problem: Problem) -> dict[str, float]:
    """Return the moments of a rule, computed by the library."""
    p, f, k = problem
    entry = ESTIMATORS[name]
    assert entry.rule is not None and entry.scheme is not None, f"{name} is not a rule"
    logits = torch.tensor(p, dtype=torch.float64).log().requires_grad_()
    costs = torch.tensor(f, dtype=torch.float64)
    exact = exact_moments(
        entry.rule,
        entry.scheme,
        lambda x: costs[x],
        Categorical(logits=logits),
        k,
        [logits],
        baseline=entry.baseline,
    )
    return {
        "bias": float(exact.bias),
        "variance": float(exact.variance),
        "gradientBias": float(exact.gradient_bias.norm()),
        "gradientVariance": float(exact.total_variance),
    }


def check_rules_of_the_page(results: Results, problem: Problem) -> None:
    """Each rule of the page has a registered name, and the moments that the library computes."""
    assert set(results) <= set(ESTIMATORS)
    found = {(name, key): float(x) for name, row in results.items() for key, x in row.items()}
    expected = {(name, key): x for name in results for key, x in in_library(name, problem).items()}
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("place", range(len(PROBLEMS)))
def test_the_rules_of_the_page_agree_with_the_library(
    javascript: list[Results], place: int
) -> None:
    check_rules_of_the_page(javascript[place], PROBLEMS[place])


def test_a_rule_that_the_page_does_not_have_is_no_failure(
    javascript: list[Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = lift(rloo, Scheme.WITH_REPLACEMENT, unbiased=True, equation="none")
    monkeypatch.setitem(ESTIMATORS, "one_more_rule", entry)
    check_rules_of_the_page(javascript[1], PROBLEMS[1])


@pytest.mark.parametrize("wrong", [{"no_such_rule": "raj"}, {"raj": "risk"}, {"arsm": "raj"}])
def test_a_wrong_name_or_value_is_a_failure(
    javascript: list[Results], wrong: dict[str, str]
) -> None:
    results = javascript[1] | {name: javascript[1][other] for name, other in wrong.items()}
    with pytest.raises(AssertionError):
        check_rules_of_the_page(results, PROBLEMS[1])


def test_the_page_has_the_rules_of_the_paper(javascript: list[Results]) -> None:
    paper = {"single_sample", "rloo", "unordered_set", "sum_and_sample", "risk"}
    paper |= {"deterministic_sum_and_sample", "importance_weighted"}
    assert paper | {"normalized_importance_weighted"} <= set(javascript[0])


# The lowest cost of m draws.

BEST_OF = [(*problem, m) for problem in PROBLEMS for m in range(1, problem[2] + 1)]


@pytest.fixture(scope="module")
def bests() -> list[dict[str, Any]]:
    return run_script("bestOfMoments", BEST_OF)


@pytest.mark.parametrize("place", range(len(BEST_OF)))
def test_the_best_of_m_agrees_with_the_library(bests: list[dict[str, Any]], place: int) -> None:
    p, f, k, m = BEST_OF[place]
    logits = torch.tensor(p, dtype=torch.float64).log().requires_grad_()
    costs, log_probs = torch.tensor(f, dtype=torch.float64), logits.log_softmax(-1)
    exact = swor.exact_best_of(lambda x: costs[x], Categorical(logits=logits), m, largest=False)
    assert bests[place]["value"] == pytest.approx(exact.item(), abs=1e-12)
    sets, multisets = distinct(log_probs, k), independent(log_probs, k)
    baseline = "centred" if k > m else "fewer"
    estimates = {
        "best_of": (swor.best_of(sets[0], m, largest=False), sets),
        "best_of_independent": (
            swor.best_of_independent(multisets[0], m, largest=False, baseline=baseline),
            multisets,
        ),
    }
    for name, (estimate, (sample, probability)) in estimates.items():
        loss = estimate.loss(costs[sample.value])
        rows = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in loss]
        expected = {
            "bias": 0.0,
            "variance": covariance(loss.detach().unsqueeze(-1), probability).item(),
            "gradientBias": 0.0,
            "gradientVariance": covariance(torch.stack(rows), probability).trace().item(),
        }
        assert bests[place][name] == pytest.approx(expected, rel=1e-6, abs=1e-12)
