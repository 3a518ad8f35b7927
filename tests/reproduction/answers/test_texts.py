"""The numbers and words of the texts, on tables whose answers are known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from reproduction.answers import lm, rl4co, tsp, vae


def test_the_lead_is_over_the_best_of_the_others_at_every_epoch() -> None:
    rows = [("unordered_set", 1, 5.0), ("rloo", 1, 6.0), ("arsm", 1, 9.0), ("relax", 1, 11.0)]
    rows += [("unordered_set", 2, 4.0), ("rloo", 2, 4.0), ("arsm", 2, 8.5)]
    points = pd.DataFrame(rows, columns=["estimator", "epoch", "negative_elbo"])
    assert vae.lead(points) == 3.0


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ([1.0, 2.4], "+1.8 (−0.7 to +4.3)"),
        ([5.0, 5.6], "−1.8 (−4.3 to +0.7)"),
        ([1.0], "+2.5 (one run each)"),
    ],
)
def test_rloo_minus_the_unordered_set_estimator(ours: list[float], words: str) -> None:
    usual = [3.0, 4.0] if len(ours) > 1 else [3.5]
    runs = {"unordered_set": ours, "rloo": usual}
    rows = [(name, seed, x) for name, values in runs.items() for seed, x in enumerate(values)]
    values = pd.DataFrame(rows, columns=["estimator", "seed", "value"])
    assert vae.apart(values) == words


def test_late_means_are_those_of_each_run(tmp_path: Path) -> None:
    ends = {
        ("rloo", 0): 9.0,
        ("rloo", 1): 7.0,
        ("unordered_set", 0): 5.0,
        ("unordered_set", 1): 5.0,
    }
    rows = []
    for (name, seed), end in ends.items():
        for split in ("train", "valid"):
            for epoch in range(1, 201):
                value = end if epoch > 100 else 20.0
                smooth = 0.0 if epoch == 110 + 10 * seed else 1.0
                rows.append((name, seed, split, epoch, value, smooth))
    columns = ["estimator", "seed", "split", "epoch", "negative_elbo", "smoothed"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "curves.csv", index=False)
    lines = vae.late_means(tmp_path).splitlines()
    apart = "+3.0 (−9.7 to +15.7)"  # 4 and 2 by seed: 3 ± t(0.975) with one degree of freedom
    assert f"| RLOO | 9.0, 7.0 | {apart} | 9.0, 7.0 | {apart} | 110 to 120 |" in lines
    assert (
        "| Unordered set, built-in baseline | 5.0, 5.0 | – | 5.0, 5.0 | – | 110 to 120 |" in lines
    )


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
    assert task.saved().startswith("+225.0 (−")
    assert task.late("rloo", "duplicates") == 0.6
    assert task.largest_early("duplicates") == (0.2, 0.2)


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
    table = tsp.when_it_pays(tmp_path / "when_it_pays")
    assert "| 1 000 | 40.0 % | 2.00 ± 0.20 |" in table


def test_variances_are_compared_at_equal_evaluations_and_at_equal_time(tmp_path: Path) -> None:
    found = {("rloo", 4): 2.0, ("carms", 4): 1.9, ("relax", 1): 1.0, ("relax", 4): 1.5}
    seconds = {"rloo": 1.0, "carms": 8.0, "relax": 2.0}
    rows = [
        {"epoch": epoch, "estimator": name, "k": k, "evaluations": k, "part": part}
        | {"log_variance": value - (part == "both"), "standard_error": 0.02}
        for epoch in (1, 20)
        for (name, k), value in found.items()
        for part in ("encoder", "both")
    ]
    times = [{"epoch": 20, "estimator": n, "k": k, "seconds": seconds[n]} for n, k in found]
    pd.DataFrame(rows).to_csv(tmp_path / "variance.csv", index=False)
    pd.DataFrame(times).to_csv(tmp_path / "times.csv", index=False)
    text = vae.control(tmp_path)
    assert "| RELAX | 1.50 ± 0.02 | 1.65 | 2.00 | 2.19 |" in text
    assert text.index("| RELAX") < text.index("| CARMS") < text.index("| RLOO")
    assert "Lowest at 4 evaluations: RELAX, 39 % below the variance of RLOO." in text
    assert "Lowest at equal time: RLOO." in text
    assert "| 20 | 2.00 | " in vae.control_epochs(tmp_path)


def test_runs_with_a_control_variate_stand_beside_the_leading_estimators(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    both = {".": {"rloo": [5.0, 6.0], "arsm": [9.0]}, "control": {"unordered_set_additive": [3.0]}}
    for folder, values in both.items():
        rows = [
            {"dims": 20, "split": "valid", "estimator": name, "seed": seed, "epoch": epoch}
            | {"negative_elbo": value + 20 - epoch}
            for name, seeds in values.items()
            for seed, value in enumerate(seeds)
            for epoch in (2, 5, 10, 20)
        ]
        pd.DataFrame(rows).to_csv(tmp_path / folder / "curves.csv", index=False)
    lines = vae.control_training(tmp_path / "control").splitlines()
    assert lines[2:] == [
        "| Unordered set, additive control variate | 21.0 | 18.0 | 13.0 | 3.0 |",
        "| RLOO | 23.0, 24.0 | 20.0, 21.0 | 15.0, 16.0 | 5.0, 6.0 |",
    ]


def test_training_from_the_authors_policy_is_compared_at_both_learning_rates(
    tmp_path: Path,
) -> None:
    results = Path(__file__).parents[3] / "results" / "tsp"
    shutil.copytree(results / "best_of_k", tmp_path / "best_of_k")
    for rate, behind in (("1e-4", (0.03, 0.05)), ("1e-5", (-0.01, -0.03))):
        (tmp_path / f"continued-{rate}").mkdir()
        rows = [("unordered_set", seed, 0.25) for seed in (1, 2)]
        rows += [("rloo", seed, 0.25 + apart) for seed, apart in enumerate(behind, start=1)]
        file = tmp_path / f"continued-{rate}" / "paired.csv"
        pd.DataFrame(rows, columns=["estimator", "seed", "gap"]).to_csv(file, index=False)
    text = tsp.answer(tmp_path)
    assert "by +0.040 (−0.087 to +0.167) percentage points at the learning rate 1e-4" in text
    assert "and by −0.020 (−0.147 to +0.107) percentage points at the learning rate 1e-5" in text


def test_every_validation_and_their_mean_are_compared(tmp_path: Path) -> None:
    gaps = {
        ("unordered_set", 1): [9.0, 2.0, 1.0],
        ("unordered_set", 2): [9.0, 2.0, 1.0],
        ("unordered_set", 3): [9.0, 2.0, 1.0],
        ("rloo", 1): [9.0, 2.1, 0.9],
        ("rloo", 2): [9.0, 2.2, 1.0],
        ("rloo", 3): [9.0, 2.3, 1.1],
    }
    rows = [(*run, 500 * i, gap) for run, curve in gaps.items() for i, gap in enumerate(curve)]
    columns = ["estimator", "seed", "steps", "gap"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "gaps.csv", index=False)
    header, _, row = tsp.checkpoints(tmp_path).splitlines()
    assert header.endswith("| step 500 | step 1000 | mean of these |")
    first, second, mean = (cell.strip() for cell in row.split("|")[2:5])
    assert first == "+0.2000 (−0.0484 to +0.4484); behind in 3 of 3"
    assert second == "+0.0000 (−0.2484 to +0.2484); behind in 1 of 3"
    assert mean == "+0.1000 (−0.1484 to +0.3484); behind in 2 of 3"
