"""Train on TSP and CVRP with 20 nodes beside rl4co's own methods, at equal numbers of solutions.

The methods are `unordered_set` and `rloo` of this library, rl4co's attention model with its rollout
baseline, and POMO. All train the same network, and see the same number of solutions in each step: k of
every instance, or one each of k times as many instances for the rollout baseline, which has one. After
every epoch the greedy solutions of fixed instances are measured, and after training the best of up to
64 solutions, by several ways to decode.
"""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.drawing import draw_runs, nested, panels
from reproduction.harness.errors import UserError, check_positive
from reproduction.harness.folder import RunFolder, read_json
from reproduction.harness.tables import markdown

if TYPE_CHECKING:
    from rl4co.envs import RL4COEnvBase
    from rl4co.models import RL4COLitModule

Method = Literal["unordered_set", "rloo", "rl4co_rollout", "rl4co_pomo"]
DECODING = ("distinct", "sampling", "multistart_sampling", "multistart_greedy")
FREE = ("out", "summary", "problems", "methods", "seeds")  # may differ between the runs of a folder
TABULATED = (1, 4, 16, 64)  # numbers of solutions
BATCH, LEARNING_RATE = 64, 5e-4  # instances per step, and the rate of Adam
INSTANCES = 256  # on which all are measured


@dataclass(frozen=True, kw_only=True)
class RL4COSettings:
    """Train beside rl4co's own methods, in the environment of rl4co.

    Every run (a problem, a method, a seed) is one file in the folder. Runs that are there are not
    repeated: start the same command again after an interruption. Writes the tables training and
    best_of_k, as CSV and in Markdown, and figure.png.

    Attributes:
        problems: environments of rl4co.
        methods: to train with.
        seeds: number of seeds.
        nodes: number of nodes of an instance.
        k: solutions per instance.
        epochs: number of epochs.
        steps: steps per epoch.
        out: folder of the runs.
        summary: train nothing; write the tables and the figure of the runs in the folder.
    """

    problems: tuple[str, ...] = ("tsp", "cvrp")
    methods: tuple[Method, ...] = get_args(Method)
    seeds: int = 3
    nodes: int = 20
    k: int = 8
    epochs: int = 6
    steps: int = 50
    out: Path = Path("runs/rl4co")
    summary: bool = False

    def __post_init__(self) -> None:
        check_positive(self, "seeds", "nodes", "k", "epochs", "steps")


def rl4co(settings: RL4COSettings) -> Path:
    """Train what the folder lacks, summarise all runs in it, and return it."""
    torch.set_num_threads(1)
    if not settings.summary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            train_all(settings)
    summarise(settings.out)
    return settings.out


def train_all(settings: RL4COSettings) -> None:
    """Train every run that is not there yet, seed after seed."""
    same = {name: value for name, value in sorted(asdict(settings).items()) if name not in FREE}
    runs = product(range(settings.seeds), settings.problems, settings.methods)
    for seed, problem, method in runs:
        path = settings.out / f"{problem}-{method}-{seed}.json"
        if path.exists():
            if read_json(path)["settings"] != same:
                raise UserError(
                    f"{path} was made with other settings; expected {same}. Give another folder "
                    "with --out, or remove it."
                )
            continue
        found = train(problem, method, seed, settings)
        about = {"problem": problem, "method": method, "seed": seed, "settings": same}
        RunFolder(settings.out).write_json(path.name, about | found)
        last = found["training"][-1]
        print(f"{path.stem}: cost {last['cost']:.3f}, {last['seconds']:.0f} s", flush=True)


def train(problem: str, method: str, seed: int, settings: RL4COSettings) -> dict[str, Any]:
    """Return the course of the training of a run, and the costs of the solutions of its policy."""
    from lightning import seed_everything
    from rl4co.envs import get_env
    from rl4co.utils import RL4COTrainer

    from swor.integrations.rl4co import best_of_k

    seed_everything(2024, verbose=False)  # the same instances for all
    env = get_env(problem, generator_params={"num_loc": settings.nodes})
    instances = env.reset(batch_size=[INSTANCES])
    seed_everything(seed, verbose=False)
    module = make_module(env, method, settings)
    training: list[dict[str, float]] = []
    RL4COTrainer(
        max_epochs=settings.epochs,
        accelerator="cpu",
        devices=1,
        precision="32-true",
        callbacks=[make_callback(instances, BATCH * settings.k, training)],
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module)
    best = best_of_k(module.policy, env, instances, TABULATED[-1], methods=DECODING)
    return {"training": training, "best_of_k": {way: costs(best, way) for way in best}}


def make_module(env: RL4COEnvBase, method: str, settings: RL4COSettings) -> RL4COLitModule:
    """Return the module of a method; one step of it sees batch · k solutions."""
    from rl4co.models import POMO, AttentionModel, AttentionModelPolicy

    from swor.integrations.rl4co import PolicyGradient

    policy = AttentionModelPolicy(env_name=env.name)
    alone = method == "rl4co_rollout"  # one solution per instance
    batch = BATCH * (settings.k if alone else 1)
    options: dict[str, Any] = {
        "batch_size": batch,
        "train_data_size": batch * settings.steps,
        "val_data_size": INSTANCES,
        "test_data_size": 1,
        "optimizer_kwargs": {"lr": LEARNING_RATE},
    }
    if alone:
        return AttentionModel(env, policy, baseline="rollout", **options)
    if method == "rl4co_pomo":
        return POMO(env, policy, num_starts=settings.k, num_augment=1, **options)
    return PolicyGradient(env, policy, estimator=method, k=settings.k, **options)


def make_callback(instances: Any, solutions: int, rows: list[dict[str, float]]) -> Any:
    """Return a callback that appends a row after every epoch: the cost of greedy solutions, and the time.

    A step sees as many solutions as are given.
    """
    from lightning import Callback

    class Measure(Callback):  # type: ignore[misc]
        seconds, since = 0.0, time.process_time()

        def on_train_epoch_start(self, trainer: Any, module: RL4COLitModule) -> None:
            module.policy.train()  # rl4co's rollout baseline leaves it in evaluation mode

        def on_train_epoch_end(self, trainer: Any, module: RL4COLitModule) -> None:
            self.seconds += time.process_time() - self.since
            with torch.no_grad():
                out = module.policy.eval()(instances.clone(), module.env, decode_type="greedy")
            row = {"solutions": solutions * trainer.global_step, "seconds": self.seconds}
            rows.append(row | {"cost": -out["reward"].mean().item()})
            self.since = time.process_time()

    return Measure()


def costs(best: dict[str, torch.Tensor], way: str) -> dict[str, list[float]]:
    """Return the mean cost for every k, and how much it is less than with rl4co's sampling."""
    less = best[way] - best["sampling"]
    error = less.std(0) / len(less) ** 0.5
    means = {"cost": -best[way].mean(0), "saved": less.mean(0), "error": error}
    return {name: numbers.tolist() for name, numbers in means.items()}


def summarise(out: Path) -> None:
    """Write the tables and the figure of all runs in a folder."""
    runs = [read_json(path) for path in sorted(out.glob("*.json"))]
    if not runs:
        raise UserError(
            f"there are no runs in {out}; expected some. Run the command without --summary first."
        )
    training, decoded = [], []
    for run in runs:
        about = {key: run[key] for key in ("problem", "method", "seed")}
        training += [about | row for row in run["training"]]
        for way, columns in run["best_of_k"].items():
            k = range(1, len(columns["cost"]) + 1)
            decoded.append(pd.DataFrame(about | {"decoding": way, "k": k} | columns))
    frames = pd.DataFrame(training), pd.concat(decoded)
    tables = {"training": training_table(frames[0]), "best_of_k": decoding_table(frames[1])}
    folder = RunFolder(out)
    for (name, table), frame in zip(tables.items(), frames, strict=True):
        folder.write_csv(f"{name}.csv", frame.to_dict("records"))
        folder.write_text(f"{name}.md", table)
        print(table)
    folder.write_figure("figure.png", training_figure(*frames))
    print(f"The tables training and best_of_k, as CSV and in Markdown, and figure.png are in {out}")


def problems(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of every problem, TSP first."""
    return [(name, rows[rows["problem"] == name]) for name in sorted(set(rows["problem"]))[::-1]]


def training_table(training: pd.DataFrame) -> str:
    """Return the greedy cost over the last third of the epochs, and the processor time of a run."""
    last, lines = training["solutions"].max(), []
    for problem, part in problems(training):
        for method in in_order(part["method"]):
            rows = part[part["method"] == method]
            late = rows[rows["solutions"] > last * 2 / 3].groupby("seed")["cost"].mean()
            minutes = rows[rows["solutions"] == last]["seconds"].mean() / 60
            each = ", ".join(f"{cost:.3f}" for cost in late)
            label = appearance(method).label
            lines.append([problem.upper(), label, f"{late.mean():.3f}", each, f"{minutes:.1f}"])
    return markdown(["problem", "trained by", "greedy cost", "seeds", "minutes"], lines)


def decoding_table(decoded: pd.DataFrame) -> str:
    """Return the cost of the best of k, averaged over all trained policies."""
    ks = [k for k in TABULATED if k in set(decoded["k"])]
    means = decoded.groupby(["problem", "decoding", "k"])["cost"].mean()
    lines = [
        [problem.upper(), appearance(way).label, *(f"{means[problem, way, k]:.3f}" for k in ks)]
        for problem, _ in problems(decoded)
        for way in DECODING
    ]
    return markdown(["problem", "decoding", *(f"best of {k}" for k in ks)], lines)


def training_figure(training: pd.DataFrame, decoded: pd.DataFrame) -> Figure:
    """Plot the greedy cost against the solutions seen, and the cost of the best of k against k."""
    rows = problems(training)
    figure, axes = panels(9.0, 4.0 * len(rows), len(rows), 2)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.12)  # inches, around every panel
    for (left, right), (problem, part) in zip(axes, rows, strict=True):
        _cost_panel(left, part, "method", "solutions")
        left.xaxis.set_major_formatter(EngFormatter())  # 50 k, 100 k
        left.set(title=f"{problem.upper()}: greedy solutions", xlabel="solutions seen in training")
        trained = decoded[decoded["problem"] == problem]
        by = in_order(trained["method"])[-1]
        by = "unordered_set" if "unordered_set" in set(trained["method"]) else by
        _cost_panel(right, trained[trained["method"] == by], "decoding", "k")
        label = appearance(by).label.partition(",")[0]
        right.set(title=f"{problem.upper()}: best of k", xlabel="solutions k")
        right.legend(title=f"trained with {label}", frameon=False, fontsize=9, title_fontsize=9)
        right.set_xscale("log", base=2)
        right.xaxis.set_major_formatter("{x:g}")
    return figure


def _cost_panel(ax: Axes, rows: pd.DataFrame, series: str, x: str) -> None:
    for name, width in nested(in_order(rows[series])):
        draw_runs(ax, rows[rows[series] == name], x, "cost", appearance(name), width=width)
    ax.set_ylabel("mean cost")
    ax.legend(frameon=False, fontsize=9)
