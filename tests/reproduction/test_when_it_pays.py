"""The command ``when-it-pays``: its variances are exact, and its table has what is drawn."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pandas as pd
import torch
from problems import seeded
from torch import Tensor

import swor
from reproduction import when_it_pays
from reproduction.cli import main
from reproduction.harness.statistics import with_error
from reproduction.pronunciation.tables import gains

ROOT = Path(__file__).parents[2]


def test_the_variances_are_exact() -> None:
    """Variances by brute force: over all draws, and over all sets with their gradients written out."""
    k = 3
    log_p = torch.randn(5, generator=seeded(), dtype=torch.float64).mul(2).log_softmax(-1)
    cost, p = when_it_pays.costs(5, 4, seeded()), log_p.exp()
    slopes = torch.eye(5, dtype=torch.float64) - p  # of log p by the logits
    draws = torch.cartesian_prod(*[torch.arange(5)] * k)
    sets = torch.combinations(torch.arange(5), k)
    weights = swor.unordered_set(
        swor.Sample(sets, log_p[sets], scheme=swor.Scheme.WITHOUT_REPLACEMENT)
    )
    for f, ours, theirs in zip(
        cost,
        when_it_pays.variance_distinct(log_p, cost, k),
        when_it_pays.variance_independent(log_p, cost, k),
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
    assert abs(when_it_pays.duplicates(log_p, k) - share) < 1e-12


def total_variance(chance: Tensor, factor: Tensor, slopes: Tensor) -> Tensor:
    """Of the gradients that samples of these chances give."""
    gradient = (factor.unsqueeze(-1) * slopes).sum(-2)
    mean = (chance.unsqueeze(-1) * gradient).sum(0)
    return (chance * (gradient - mean).square().sum(-1)).sum()


def test_the_command_writes_a_table_and_a_figure(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["when-it-pays", "--policies", "1", "--out", str(out)]) == 0
    with (out / "gains.csv").open() as file:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    assert {row["k"] for row in rows} == {2.0, 4.0, 8.0}
    for row in rows:
        assert 0.99 < row["gain_10"] <= row["gain_50"] <= row["gain_90"]
    assert (out / "when_it_pays.png").exists()
    assert main(["when-it-pays", "--policies", "0"]) == 1


def test_the_page_has_the_numbers_of_the_tables() -> None:
    page = (ROOT / "docs" / "when_it_pays.md").read_text(encoding="utf-8")
    gains = pd.read_csv(ROOT / "results" / "when_it_pays" / "gains.csv").query("k == 4")
    by_share = {round(100 * row.duplicates): row for row in gains.itertuples()}
    rows = re.findall(
        r"^\| (\d+) % \| (\S+) \| (\S+) (?:to (\S+)|and more) \|$", page, re.MULTILINE
    )
    assert len(rows) == 6
    for share, *shown in rows:
        row = by_share[int(share)]
        for text, value in zip(shown, (row.gain_50, row.gain_10, row.gain_90), strict=True):
            digits = len(text.partition(".")[2])
            assert not text or f"{value:.{digits}f}" == text
    measured = (ROOT / "results" / "when_it_pays" / "training.md").read_text(encoding="utf-8")
    assert all(line in page for line in measured.splitlines()[2:])


def test_the_pages_have_the_numbers_of_pronunciation() -> None:
    found = gains(pd.read_csv(ROOT / "results" / "pronunciation" / "variance.csv")).sort_index()
    page = (ROOT / "docs" / "when_it_pays.md").read_text(encoding="utf-8")
    for k, row in found.iterrows():
        ratio = with_error(row["gain"], row["gain_error"])
        assert f"| {k} | {row['duplicates']:.0f} % | {ratio} |" in page
    assert f"worth at most {16 * found['gain'][16]:.0f} independent" in page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    at = f"At {found['duplicates'][4]:.0f} %, the variance of RLOO is {found['gain'][4]:.1f} times"
    assert at in readme
