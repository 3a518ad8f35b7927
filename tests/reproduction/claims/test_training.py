"""Claims about the VAE and about trained policies: their criteria, on tables that fulfil them or not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("scipy")

from reproduction.claims.criteria import sequences, tours, vae
from reproduction.vae.published import PAPER, paper_k

ROOT = Path(__file__).parents[3]


def variances(
    shift: dict[str, float] | None = None, sign: float = 1.0, error: float = 0.01
) -> pd.DataFrame:
    """Return the paper's values for 10^2, changed, as the rows of a variance.csv."""
    rows = [
        {"epoch": 20, "estimator": name, "k": entry.k, "part": "both", "standard_error": error}
        | {"log_variance": sign * entry.log_variance[2] + (shift or {}).get(name, 0.0)}
        for name, entry in PAPER.items()
    ]
    other = [row | {"epoch": 10, "log_variance": 0.0} for row in rows]
    return pd.DataFrame([*rows, *other])


def test_table_1_agrees_with_itself() -> None:
    table = variances()
    assert vae.lowest(table)[1] == "agrees"
    assert vae.same_order(table, 2)[1] == "agrees"
    assert vae.highest(table)[1] == "agrees"
    assert vae.tied(table, "sum_and_sample")[1] == "agrees"


def test_table_1_in_reverse_differs() -> None:
    table = variances(sign=-1.0)
    assert vae.lowest(table)[1] == "differs"
    assert vae.same_order(table, 2)[1] == "differs"
    assert vae.highest(table)[1] == "differs"


def test_noise_leaves_table_1_undecided() -> None:
    table = variances(error=2.0)
    assert vae.lowest(table)[1] == "undecided"
    assert vae.same_order(table, 2)[1] == "undecided"
    assert vae.tied(table, "sum_and_sample")[1] == "undecided"


def test_a_lower_variance_of_another_estimator_is_named() -> None:
    number, decision = vae.lowest(variances({"rloo": -5.0}))
    assert decision == "differs"
    assert "RLOO" in number


def curves(dims: int, ends: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    rows = [
        {"run": f"{name}-{seed}", "dims": dims, "estimator": name, "k": paper_k(name)}
        | {"seed": seed, "split": split, "epoch": epoch}
        | {"negative_elbo": end + 30.0 * (10 - epoch) + (50.0 if split == "valid" else 0.0)}
        for name, values in ends.items()
        for seed, end in enumerate(values)
        for split in ("train", "valid")
        for epoch in range(1, 6 if name == "arsm" else 11)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("rloo", "decision"), [(100.2, "agrees"), (103.0, "differs")])
def test_training_on_par(rloo: float, decision: str) -> None:
    table = curves(2, {"unordered_set": (100.0, 100.1), "rloo": (rloo, rloo + 0.1)})
    assert vae.trains_on_par(table, 2, "rloo")[1] == decision
    more = pd.concat([table, curves(20, {"rloo": (300.0,), "unordered_set": (500.0,)})])
    assert vae.trains_on_par(more, 2, "rloo") == vae.trains_on_par(table, 2, "rloo")


def test_an_estimator_must_be_behind_in_one_domain_at_equal_epochs() -> None:
    small = {"unordered_set": (100.0, 100.1), "relax": (110.0, 110.1), "arsm": (100.0, 100.1)}
    large = {"unordered_set": (100.0, 100.1), "relax": (90.0, 90.1), "arsm": (105.0, 105.1)}
    tables = curves(2, small), curves(20, large)
    number, decision = vae.outperforms_in_one(*tables)
    assert decision == "agrees"
    assert number.startswith("+5.00 (") and number.endswith(" nats: ARSM")
    assert vae.outperforms_in_one(curves(2, large), tables[1])[1] == "differs"


def gaps(ends: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    rows = [
        {"estimator": name, "seed": seed, "steps": steps}
        | {"instances": steps * (512 if name.startswith("reinforce") else 128)}
        | {"gap": gap * 400 / steps}
        for name, values in ends.items()
        for seed, gap in enumerate(values)
        for steps in (100, 200, 300, 400)
    ]
    return pd.DataFrame(rows)


GAPS = {
    "unordered_set": (1.0, 1.02),
    "rloo": (1.3, 1.32),
    "sum_and_sample_shared_sampled_baseline": (0.8, 0.82),
    "risk": (1.03, 1.05),
    "reinforce_rollout": (1.0, 1.02),
    "reinforce_batch_mean": (1.1, 1.12),
}


def test_gaps_are_compared_at_the_end() -> None:
    table = gaps(GAPS)
    assert tours.shorter_tours(table, "rloo") == ("+29.7 (+28.8 to +30.6) % of the gap", "agrees")
    assert tours.shorter_tours(table, "sum_and_sample_shared_sampled_baseline")[1] == "differs"
    assert tours.shorter_tours(table, "reinforce_rollout")[1] == "undecided"
    assert tours.tours_on_par(table, "risk")[1] == "agrees"
    assert tours.tours_on_par(table, "rloo")[1] == "differs"


def test_runs_of_several_starts_are_paired_within_their_start() -> None:
    """The levels of the starts, which differ by far more than the estimators, leave no trace."""
    first = gaps({"unordered_set": (1.0, 1.2, 9.0), "rloo": (1.1, 1.32), "risk": (5.0,)})
    second = gaps({"unordered_set": (30.0, 40.0), "rloo": (33.0, 44.0)})
    found = tours.shorter_tours_from_each(first, second, other="rloo")
    assert found == ("+10.0 (+10.0 to +10.0) % of the gap", "agrees")
    noisy = gaps({"unordered_set": (30.0, 40.0), "rloo": (27.0, 44.0)})
    assert tours.shorter_tours_from_each(first, noisy, other="rloo")[1] == "undecided"


def test_single_samples_are_compared_at_equal_instances() -> None:
    number, decision = tours.fewer_instances(gaps(GAPS))
    assert decision == "agrees"
    assert "greedy rollout" in number


@pytest.mark.parametrize(("gain", "decision"), [(2.0, "agrees"), (1.1, "undecided")])
def test_the_most_confident_policy_counts(gain: float, decision: str) -> None:
    table = pd.DataFrame(
        [(0, "unordered_set", 1.0, 0.1), (9, "unordered_set", gain, 0.1), (9, "rloo", 1.0, 0.0)],
        columns=["step", "estimator", "gain", "gain_error"],
    )
    policies = pd.DataFrame({"step": [0, 9], "duplicates": [0.0, 0.4]})
    number, found = tours.less_variance(table, policies)
    assert found == decision
    assert "40 %" in number


@pytest.mark.parametrize(
    ("gap", "decision"), [(0.1, "agrees"), (0.2, "undecided"), (0.3, "differs")]
)
def test_a_few_distinct_tours_are_compared_with_many(gap: float, decision: str) -> None:
    rows = [("distinct", 4, gap, 0.01), ("sampling", 16, 0.2, 0.01), ("sampling", 4, 9.0, 0.01)]
    growth = pd.DataFrame(rows, columns=["method", "k", "gap", "gap_error"])
    assert tours.fewer_tours(growth, few=4, many=16)[1] == decision


@pytest.mark.parametrize(
    "behind, ahead, par",
    [(0.004, "agrees", "agrees"), (0.1, "agrees", "differs"), (-0.1, "differs", "differs")],
)
def test_final_models_are_compared_by_seeds(behind: float, ahead: str, par: str) -> None:
    rows = [("unordered_set", seed, 0.2) for seed in (1, 2, 3)]
    rows += [("rloo", seed, 0.2 + behind + 0.001 * (seed - 2)) for seed in (1, 2, 3)]
    rows.append(("rloo", 4, 9.0))  # a seed that the other does not have
    paired = pd.DataFrame(rows, columns=["estimator", "seed", "gap"])
    number, decision = tours.shorter_final_tours(paired, "rloo")
    assert decision == ahead and number.startswith(f"{behind:+.4f}".replace("-", "−"))
    number, decision = tours.final_tours_on_par(paired, "rloo")
    assert decision == par and f"{500 * behind:+.1f}".replace("-", "−") in number


@pytest.mark.parametrize(
    "tangents, decision", [(0.7, "agrees"), (0.78, "undecided"), (0.9, "differs")]
)
def test_a_control_variate_has_to_lower_the_variance_by_a_margin(
    tangents: float, decision: str
) -> None:
    values = {"rloo": 1.0, "unordered_set": 1.01, "unordered_set_tangents": tangents}
    rows = [
        {"estimator": name, "part": part, "k": k, "log_variance": x, "standard_error": 0.01}
        for name, value in values.items()
        for part, k, x in (("encoder", 4, value), ("decoder", 4, 0.0), ("encoder", 1, 5.0))
    ]
    found = vae.controlled(pd.DataFrame(rows), "unordered_set_tangents", 0.22)
    assert found[1] == decision and f"{1.0 - tangents:+.2f}" in found[0]


def test_a_run_that_misses_the_target_counts_as_its_length() -> None:
    rows = [("unordered_set", 0, 100.0, 400), ("unordered_set", 1, 110.0, 400)]
    rows += [("rloo", 0, float("nan"), 400), ("rloo", 1, 395.0, 400)]
    table = pd.DataFrame(rows, columns=["estimator", "seed", "steps", "last"])
    number, decision = sequences.fewer_steps(table)
    assert decision == "agrees"
    assert number.startswith("+292.5 ")


@pytest.mark.parametrize(
    ("metric", "expected"), [("best_of_gap", "agrees"), ("best_of_solved", "differs")]
)
def test_the_better_direction_of_the_best_of_m_is_known(metric: str, expected: str) -> None:
    rows = [("mean", 2.0, 2.1), ("independent", 1.5, 1.6), ("distinct", 1.0, 1.1)]
    table = pd.DataFrame(rows, columns=["objective", f"{metric}, seed 0", f"{metric}, seed 1"])
    assert sequences.better_best(table, metric)[1] == expected


def test_every_problem_must_be_ahead() -> None:
    rows = [
        {"problem": problem, "method": method, "seed": seed, "solutions": solutions, "cost": cost}
        for problem, costs in (("tsp", (4.0, 4.4)), ("cvrp", (7.0, 6.0)))
        for method, cost in zip(("unordered_set", "rl4co_pomo"), costs, strict=True)
        for seed in range(2)
        for solutions in (100, 300)
    ]
    table = pd.DataFrame(rows)
    assert tours.ahead_of(table, "rl4co_pomo", ("tsp",))[1] == "agrees"
    number, decision = tours.ahead_of(table, "rl4co_pomo", ("tsp", "cvrp"))
    assert decision == "differs" and number.endswith("% of the cost: CVRP")


@pytest.mark.parametrize(("starts", "decision"), [(4.2, "agrees"), (3.8, "differs")])
def test_the_best_of_k_is_that_of_each_methods_own_way_to_decode(
    starts: float, decision: str
) -> None:
    ways = {"unordered_set": "distinct", "rl4co_pomo": "multistart_greedy"}
    cost = {("unordered_set", "distinct"): 4.0, ("rl4co_pomo", "multistart_greedy"): starts}
    rows = [
        {"problem": "tsp", "method": method, "decoding": way, "seed": seed, "k": k}
        | {"cost": cost.get((method, way), 9.0 if method == "unordered_set" else 1.0) + 0.01 * seed}
        for method in ways
        for way in ways.values()
        for seed in range(3)
        for k in (8, 16)
    ]
    table = pd.DataFrame(rows)
    table.loc[table["k"] == 16, "cost"] = 4.0  # is not compared
    number, found = tours.better_best_of_k(table, "rl4co_pomo", ways, 8, ("tsp",))
    assert found == decision and number.endswith("% of the cost: TSP")


def test_the_noise_of_one_other_estimator_decides_nothing() -> None:
    gaps = pd.read_csv(ROOT / "results" / "tsp" / "tsp20" / "gaps.csv")
    assert tours.shorter_tours(gaps, "reinforce_rollout")[1] == "undecided"


@pytest.mark.parametrize(
    ("ours", "decision"), [(1.0, "agrees"), (1.9, "undecided"), (4.0, "differs")]
)
def test_every_k_must_have_less_variance(ours: float, decision: str) -> None:
    rows = [(k, e, v, 0.1 * v) for k in (4, 8) for e, v in (("rloo", 2.0), ("unordered_set", 1.0))]
    table = pd.DataFrame(rows, columns=["k", "estimator", "variance", "variance_error"])
    table.loc[(table["k"] == 8) & (table["estimator"] == "unordered_set"), "variance"] = ours
    number, found = sequences.less_variance_for_every_k(table.assign(duplicates=48.0), k=4)
    assert number == "variance of RLOO ÷ its own: 2.00 ± 0.28, at 48 % duplicates"
    assert found == decision


def test_evaluations_are_compared_by_their_variances() -> None:
    about = {"m": 1, "evaluations": 101, "samples": ["rloo", "unordered_set"]}
    precise = sequences.more_precise(pd.DataFrame(about | {"spread": [0.02, 0.01]}), m=1)
    assert precise == ("variance, independent ÷ distinct: 4.0 (2.7 to 5.9)", "agrees")
    equal = sequences.more_precise(pd.DataFrame(about | {"spread": [0.02, 0.02]}), m=1)
    assert equal[1] == "undecided"


def test_runs_of_one_seed_are_compared() -> None:
    rows = [(m, s, t, 0.5 + 0.1 * s + 0.01 * (m != "rloo mean") * t) for s in range(3) for t in (0, 1)
            for m in ("rloo mean", "unordered_set mean")]  # fmt: skip
    curves = pd.DataFrame(rows, columns=["method", "seed", "step", "sampled"])
    number, decision = sequences.better_pronunciations(curves)
    assert number == "+1.00 (+1.00 to +1.00) percentage points" and decision == "agrees"
