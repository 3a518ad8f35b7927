"""Train on TSP and CVRP with 20 nodes beside rl4co's own methods, at equal numbers of solutions.

    python benchmarks/rl4co_training.py                 # hours, most of them for the rollout baseline
    python benchmarks/rl4co_training.py --methods unordered_set rloo rl4co_pomo     # about an hour
    python benchmarks/rl4co_training.py --summary       # the tables and the figure of what is there

The methods are `unordered_set` and `rloo` of this library, rl4co's attention model with its rollout
baseline, and POMO. All train the same network, and see the same number of solutions in each step: k of
every instance, or one each of k times as many instances for the rollout baseline, which has one. After
every epoch the greedy solutions of fixed instances are measured, and after training the best of up to
64 solutions, by several ways to decode.

Every run (a problem, a method, a seed) is one file in the folder. What is there is not run again: start
the same command anew after an interruption. It writes training.csv, best_of_k.csv, tables.md and figure.png.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from lightning import Callback, seed_everything
from rl4co.envs import RL4COEnvBase, get_env
from rl4co.models import POMO, AttentionModel, AttentionModelPolicy, RL4COLitModule
from rl4co.utils import RL4COTrainer
from tensordict import TensorDict

from swor.integrations.rl4co import PolicyGradient, best_of_k

METHODS = ("unordered_set", "rloo", "rl4co_rollout", "rl4co_pomo")
DECODING = ("distinct", "sampling", "multistart_sampling", "multistart_greedy")
COLOURS = {
    "unordered_set": "#0072b2",
    "rloo": "#444444",
    "rl4co_rollout": "#008a64",
    "rl4co_pomo": "#d55e00",
    "distinct": "#0072b2",
    "sampling": "#444444",
    "multistart_sampling": "#b37700",
    "multistart_greedy": "#cc5f9b",
}


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", nargs="+", default=["tsp", "cvrp"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--k", type=int, default=8, help="solutions per instance")
    parser.add_argument("--batch", type=int, default=64, help="instances per step")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=50, help="per epoch")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--instances", type=int, default=256, help="on which all are measured")
    parser.add_argument("--largest-k", type=int, default=64)
    parser.add_argument("--output", type=Path, default=Path("runs/rl4co"))
    parser.add_argument("--summary", action="store_true", help="run nothing")
    return parser.parse_args()


def make_module(env: RL4COEnvBase, method: str, given: argparse.Namespace) -> RL4COLitModule:
    """The module of a method; one step of it sees batch · k solutions."""
    policy = AttentionModelPolicy(env_name=env.name)
    alone = method == "rl4co_rollout"  # one solution per instance
    batch = given.batch * (given.k if alone else 1)
    options: dict[str, Any] = {
        "batch_size": batch,
        "train_data_size": batch * given.steps,
        "val_data_size": given.instances,
        "test_data_size": 1,
        "optimizer_kwargs": {"lr": given.learning_rate},
    }
    if alone:
        return AttentionModel(env, policy, baseline="rollout", **options)
    if method == "rl4co_pomo":
        return POMO(env, policy, num_starts=given.k, num_augment=1, **options)
    return PolicyGradient(env, policy, estimator=method, k=given.k, **options)


class Watch(Callback):
    """Measures greedy solutions of fixed instances after every epoch, and the time between."""

    def __init__(self, instances: TensorDict, solutions: int) -> None:
        self.instances, self.solutions = instances, solutions
        self.seconds = 0.0
        self.rows: list[dict[str, float]] = []
        self.since = time.process_time()

    def on_train_epoch_start(self, trainer: RL4COTrainer, module: RL4COLitModule) -> None:
        module.policy.train()  # rl4co's rollout baseline leaves it in evaluation mode

    def on_train_epoch_end(self, trainer: RL4COTrainer, module: RL4COLitModule) -> None:
        self.seconds += time.process_time() - self.since
        policy = module.policy.eval()
        with torch.no_grad():
            out = policy(self.instances.clone(), module.env, decode_type="greedy")
        row = {"solutions": self.solutions * trainer.global_step, "seconds": self.seconds}
        self.rows.append(row | {"cost": -out["reward"].mean().item()})
        self.since = time.process_time()


def train(problem: str, method: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """One run: the course of its training, and what its policy finds in the end."""
    seed_everything(2024, verbose=False)  # the same instances for all
    env = get_env(problem, generator_params={"num_loc": given.nodes})
    instances = env.reset(batch_size=[given.instances])
    seed_everything(seed, verbose=False)
    module = make_module(env, method, given)
    watch = Watch(instances, given.batch * given.k)
    RL4COTrainer(
        max_epochs=given.epochs,
        accelerator="cpu",
        devices=1,
        precision="32-true",
        callbacks=[watch],
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module)
    best = best_of_k(module.policy, env, instances, given.largest_k, methods=DECODING)
    return {"training": watch.rows, "best_of_k": {who: tables(best, who) for who in best}}


def tables(best: dict[str, torch.Tensor], who: str) -> dict[str, list[float]]:
    """The mean cost for every k, and how much it is less than with rl4co's sampling."""
    less = best[who] - best["sampling"]
    error = less.std(0) / len(less) ** 0.5
    means = {"cost": -best[who].mean(0), "saved": less.mean(0), "error": error}
    return {name: numbers.tolist() for name, numbers in means.items()}


def run_all(given: argparse.Namespace) -> None:
    """Every run that is not there yet, seed after seed."""
    same = {
        key: value
        for key, value in sorted(vars(given).items())
        if key not in ("output", "summary", "problems", "methods", "seeds")
    }
    for seed in range(given.seeds):
        for problem in given.problems:
            for method in given.methods:
                path = given.output / f"{problem}-{method}-{seed}.json"
                if path.exists():
                    if json.loads(path.read_text())["settings"] != same:
                        sys.exit(
                            f"{path} was made with other settings; expected {same}. Give another "
                            "folder with --output, or remove it."
                        )
                    continue
                found = train(problem, method, seed, given)
                about = {"problem": problem, "method": method, "seed": seed, "settings": same}
                part = path.with_suffix(".part")
                part.write_text(json.dumps(about | found))
                os.replace(part, path)  # whole, or not there
                last = found["training"][-1]
                print(f"{path.stem}: cost {last['cost']:.3f}, {last['seconds']:.0f} s", flush=True)


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Rows as CSV."""
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def summarise(folder: Path) -> None:
    """The tables and the figure of all runs that are there."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not runs:
        sys.exit(f"there are no runs in {folder}; expected some. Run without --summary first.")
    training, decoded = [], []
    for run in runs:
        about = {key: run[key] for key in ("problem", "method", "seed")}
        training += [about | row for row in run["training"]]
        for who, columns in run["best_of_k"].items():
            for i, numbers in enumerate(zip(*columns.values(), strict=True)):
                row = dict(zip(columns, numbers, strict=True))
                decoded.append(about | {"decoding": who, "k": i + 1} | row)
    write(folder / "training.csv", training)
    write(folder / "best_of_k.csv", decoded)
    draw(folder / "figure.png", training, decoded)
    tables = [training_table(training), decoding_table(decoded)]
    (folder / "tables.md").write_text("\n".join(tables))
    print("\n".join(tables))


def training_table(training: list[dict[str, Any]]) -> str:
    """The greedy cost over the last third of the epochs, and the processor time of a run, as Markdown."""
    lines = [
        "| problem | trained by | greedy cost | seeds | minutes |",
        "| --- | --- | --- | --- | --- |",
    ]
    last = max(row["solutions"] for row in training)
    for problem in sorted({row["problem"] for row in training}, reverse=True):
        for method in METHODS:
            rows = [r for r in training if (r["problem"], r["method"]) == (problem, method)]
            late = [r for r in rows if r["solutions"] > last * 2 / 3]
            seeds = sorted({r["seed"] for r in rows})
            costs = [mean(r["cost"] for r in late if r["seed"] == seed) for seed in seeds]
            if costs:
                took = mean(r["seconds"] for r in rows if r["solutions"] == last) / 60
                each = ", ".join(f"{cost:.3f}" for cost in costs)
                lines.append(f"| {problem} | {method} | {mean(costs):.3f} | {each} | {took:.1f} |")
    return "\n".join(lines) + "\n"


def decoding_table(decoded: list[dict[str, Any]]) -> str:
    """The cost of the best of k, averaged over all trained policies, as Markdown."""
    shown = [k for k in (1, 4, 16, 64) if any(row["k"] == k for row in decoded)]
    head = " | ".join(f"best of {k}" for k in shown)
    lines = [f"| problem | decoding | {head} |", "| --- " * (2 + len(shown)) + "|"]
    for problem in sorted({row["problem"] for row in decoded}, reverse=True):
        for way in DECODING:
            rows = [r for r in decoded if (r["problem"], r["decoding"]) == (problem, way)]
            costs = [mean(r["cost"] for r in rows if r["k"] == k) for k in shown]
            lines.append(f"| {problem} | {way} | " + " | ".join(f"{c:.3f}" for c in costs) + " |")
    return "\n".join(lines) + "\n"


def draw(path: Path, training: list[dict[str, Any]], decoded: list[dict[str, Any]]) -> None:
    """Greedy cost against solutions seen, and best-of-k cost against k; bands span the seeds."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    problems = sorted({row["problem"] for row in training}, reverse=True)
    figure, axes = plt.subplots(
        len(problems), 2, figsize=(10, 4 * len(problems)), squeeze=False, layout="constrained"
    )
    for (left, right), problem in zip(axes, problems, strict=True):
        lines(left, [r for r in training if r["problem"] == problem], "method", "solutions")
        left.set(title=f"{problem}: greedy solutions", xlabel="solutions seen", ylabel="cost")
        trained = [r for r in decoded if r["problem"] == problem]
        by = "unordered_set" if any(r["method"] == "unordered_set" for r in trained) else None
        shown = [r for r in trained if by in (None, r["method"])]
        lines(right, shown, "decoding", "k")
        right.set(title=f"{problem}: best of k, trained by {by or 'all'}", xlabel="k")
        right.set_xscale("log", base=2)
    figure.savefig(path, dpi=150)


def lines(axes: Any, rows: list[dict[str, Any]], name: str, x: str) -> None:
    """A line for every name: the mean over the seeds, with a band from the least to the largest."""
    costs: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        costs[row[name]][row[x]].append(row["cost"])
    for label, colour in COLOURS.items():
        by_x = costs.get(label, {})
        at = sorted(by_x)
        least, most = [min(by_x[a]) for a in at], [max(by_x[a]) for a in at]
        if at:
            axes.plot(at, [mean(by_x[a]) for a in at], color=colour, label=label)
            axes.fill_between(at, least, most, color=colour, alpha=0.15)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def main() -> None:
    given = settings()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    given.output.mkdir(parents=True, exist_ok=True)
    if not given.summary:
        run_all(given)
    summarise(given.output)
    print(f"{given.output}: training.csv, best_of_k.csv, tables.md, figure.png")


if __name__ == "__main__":
    main()
