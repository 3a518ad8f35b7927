"""``swor explore``: its JavaScript computes what the library does, and its page works."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from browser import browser, visit
from torch.distributions import Categorical

from swor import cli
from swor.diagnostics.enumeration import exact_moments
from swor.experiments.reproduce.rules import rules

SCRIPT = files("swor.experiments.explore").joinpath("maths.js")
PROBLEMS = [
    ([0.4, 0.25, 0.2, 0.1, 0.05], [1.0, -0.5, 2.0, 0.3, 4.0], k) for k in (1, 2, 3, 4, 5)
] + [([0.98, 0.01, 0.007, 0.003], [1.0, 3.0, -2.0, 0.5], k) for k in (2, 3)]


def in_javascript(problems: list[tuple]) -> list[dict[str, dict[str, float | None]]]:
    """All moments by the page's own script, in Node.js."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node.js; install it to check the explorer's mathematics")
    call = (
        f"{SCRIPT.read_text(encoding='utf-8')}\nconst problems = {json.dumps(problems)};"
        "console.log(JSON.stringify(problems.map((x) => maths.exactMoments(...x)),"
        "(key, value) => value === Infinity ? 'inf' : value));"
    )
    done = subprocess.run([node, "-e", call], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def javascript() -> list[dict[str, dict[str, float | None]]]:
    return in_javascript(PROBLEMS)


@pytest.mark.parametrize("name", [name for name, _, _ in rules()])
@pytest.mark.parametrize("place", range(len(PROBLEMS)))
def test_javascript_agrees_with_the_library(javascript, name: str, place: int) -> None:
    p, f, k = PROBLEMS[place]
    rule, scheme = next((rule, scheme) for n, rule, scheme in rules() if n == name)
    logits = torch.tensor(p, dtype=torch.float64).log().requires_grad_()
    costs = torch.tensor(f, dtype=torch.float64)
    exact = exact_moments(rule, scheme, lambda x: costs[x], Categorical(logits=logits), k, [logits])
    ours = {key: float(value) for key, value in javascript[place][name].items()}
    expected = {
        "bias": float(exact.bias),
        "variance": float(exact.variance),
        "gradientBias": float(exact.gradient_bias.norm()),
        "gradientVariance": float(exact.total_variance),
    }
    assert ours == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_every_rule_is_there(javascript) -> None:
    assert {name for name, _, _ in rules()} == set(javascript[0])


def test_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert cli.main(["explore", "--out", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    html = path.read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert cli.main(["explore", "--out", str(path)]) == 1
    assert "exists" in capsys.readouterr().err


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser()
    path = tmp_path / "page.html"
    assert cli.main(["explore", "--out", str(path)]) == 0
    script = """
    const cell = (rule) => document.querySelector(`tr[data-rule=${rule}]`).dataset.variance;
    const set = (id, value) => {
      const input = document.getElementById(id);
      input.value = value;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const seen = [document.querySelectorAll("#rules tbody tr").length];
    set("n", 4); set("k", 4);
    seen.push(cell("unordered_set"));
    set("k", 2);
    seen.push(Number(cell("unordered_set")) > 0);
    document.getElementById("draw").click();
    seen.push(document.querySelectorAll("#sample .chip").length);
    seen.push(document.querySelectorAll("#outcomes tbody tr").length);
    seen.push(document.documentElement.scrollWidth <= innerWidth);
    result = seen;
    """
    text, console = visit(path, script, tmp_path)
    failures, seen = json.loads(text)
    assert failures == []
    assert console == ""
    assert seen == [13, "0", True, 2, 4, True]
    assert math.isfinite(seen[0])
