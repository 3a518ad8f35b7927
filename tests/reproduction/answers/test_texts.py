"""The numbers and words of the texts, on tables whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from reproduction.answers import best_of, lm, rl4co, vae, when_it_pays
from reproduction.best_of.figures import EXPERIMENTS, Metrics


def test_the_lead_is_over_the_best_of_the_others_at_every_epoch() -> None:
    rows = [("unordered_set", 1, 5.0), ("rloo", 1, 6.0), ("arsm", 1, 9.0), ("relax", 1, 11.0)]
    rows += [("unordered_set", 2, 4.0), ("rloo", 2, 4.0), ("arsm", 2, 8.5)]
    points = pd.DataFrame(rows, columns=["estimator", "epoch", "negative_elbo"])
    assert vae.lead(points) == (3.0, 4.5)


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (
            [1.0, 2.0],
            "the unordered set estimator is ahead by 2.0 nats (95 % interval: −1.0 to 5.0)",
        ),
        ([5.0, 6.0], "RLOO is ahead by 2.0 nats (95 % interval: −1.0 to 5.0)"),
        ([1.0], "the unordered set estimator is ahead by 2.5 nats (one run each)"),
    ],
)
def test_the_lower_of_two_is_ahead(ours: list[float], words: str) -> None:
    usual = [3.0, 4.0] if len(ours) > 1 else [3.5]
    rows = [("unordered_set", x) for x in ours] + [("rloo", x) for x in usual]
    values = pd.DataFrame(rows, columns=["estimator", "value"])
    assert vae.ahead(values) == words


def test_runs_that_recover_are_counted(tmp_path: Path) -> None:
    curves = {0: [211.0, 150.0], 1: [211.0, 211.0], 2: [200.0, 140.0]}
    epochs = {1: 0, 2: 0, 5: 1, 10: 1, 20: 1}
    rows = [
        {"dims": 2, "split": "valid", "estimator": "rloo", "seed": seed, "epoch": epoch}
        | {"negative_elbo": values[at]}
        for seed, values in curves.items()
        for epoch, at in epochs.items()
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "curves.csv", index=False)
    text = vae.collapse(tmp_path)
    assert "Of 3 runs, 2 have a −ELBO above 210 nats" in text
    assert "Of these, 1 recover, and 1 stay there" in text


def test_a_run_that_misses_the_target_counts_as_its_length(tmp_path: Path) -> None:
    steps = {"unordered_set": [100, 150], "rloo": [300, None]}
    rows = [(n, seed, x, 400) for n, xs in steps.items() for seed, x in enumerate(xs)]
    table = pd.DataFrame(rows, columns=["estimator", "seed", "steps", "last"])
    table.to_csv(tmp_path / "steps.csv", index=False)
    points = [("rloo", "duplicates", step, value) for step, value in ((10, 0.2), (400, 0.6))]
    columns = ["estimator", "metric", "step", "value"]
    pd.DataFrame(points, columns=columns).to_csv(tmp_path / "curves.csv", index=False)
    settings = {"settings": {"target": 0.95, "measure": "greedy"}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    task = lm.Task(tmp_path)
    assert task.solved("rloo") == "1 of 2"
    assert task.saved().startswith("225.0 steps earlier (95 % interval: ")
    assert task.late("rloo", "duplicates") == 0.6
    assert task.largest_early("duplicates") == (0.2, 0.2)


@pytest.mark.parametrize(
    ("metrics", "wins"), [(EXPERIMENTS[0], "1 of 2"), (EXPERIMENTS[1], "0 of 2")]
)
def test_a_smaller_gap_and_a_larger_share_win(metrics: Metrics, wins: str) -> None:
    seeds = [f"{metrics.best}, seed {seed}" for seed in (0, 1)]
    table = pd.DataFrame([[0.5, 0.5], [0.4, 0.5]], ["independent", "distinct"], seeds)
    assert best_of.wins(table, metrics, "independent") == wins


def test_policies_with_forced_starts_are_left_out() -> None:
    rows = [("rloo", 64, 9.9, 0.1), ("rl4co_pomo", 64, 5.0, 5.0), ("rloo", 2, 5.0, 5.0)]
    table = pd.DataFrame(rows, columns=["method", "k", "cost", "saved"]).assign(decoding="distinct")
    assert rl4co.percent(rl4co.gains_of(table)) == "1.0 to 1.0 %"


def test_the_ratio_is_that_of_rloo_over_ours(tmp_path: Path) -> None:
    tours = tmp_path / "tsp" / "variance"
    tours.mkdir(parents=True)
    ratio = {"step": [1000], "gain": [2.0], "gain_error": [0.2]}
    rows = pd.DataFrame({"estimator": ["unordered_set"]} | ratio)
    rows.to_csv(tours / "variance.csv", index=False)
    pd.DataFrame({"step": [1000], "duplicates": [0.4]}).to_csv(tours / "policies.csv", index=False)
    table = when_it_pays.training(tmp_path / "when_it_pays")
    assert "| 1 000 | 40.0 % | 2.00 ± 0.20 |" in table
