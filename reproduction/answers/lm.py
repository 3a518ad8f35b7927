"""The numbers of the pages on the language model that learns to sort."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.statistics import INTERVAL, OURS, over_seeds
from reproduction.harness.tables import committed_table, markdown
from reproduction.lm.figures import Reached, middle, steps_table

USUAL = "rloo"
EARLY, LATE = 100, 50  # the first and the last steps of training that are averaged


class Task:
    """A task: the steps until a share of the prompts is solved, and the curves."""

    def __init__(self, folder: Path) -> None:
        """Read the tables of a folder that the command lm-figures wrote."""
        self.reached = committed_table(folder / "steps.csv")
        self.curves = committed_table(folder / "curves.csv")
        chosen = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["settings"]
        self.target, self.measure = float(chosen["target"]), str(chosen["measure"])
        self.last = int(self.reached["last"].min())

    def runs(self, name: str) -> pd.DataFrame:
        """Return the runs of an estimator, in the order of their seeds."""
        return self.reached[self.reached["estimator"] == name].sort_values("seed")

    def solved(self, name: str) -> str:
        """Say how many runs reach the target."""
        steps = self.runs(name)["steps"]
        return f"{steps.notna().sum()} of {len(steps)}"

    def steps(self, name: str) -> pd.Series[float]:
        """Return the steps until the target; a run that misses it counts as its length."""
        runs = self.runs(name)
        return runs["steps"].fillna(runs["last"]).reset_index(drop=True)

    def saved(self) -> str:
        """Format the steps that the unordered set estimator saves, with the interval over the seeds."""
        return over_seeds((self.steps(USUAL) - self.steps(OURS)).tolist()).text(1)

    def late(self, name: str, metric: str) -> float:
        """Return the mean of a metric over the last steps of training."""
        return self.between(name, metric, self.last - LATE, self.last)

    def between(self, name: str, metric: str, after: int, until: int) -> float:
        """Return the mean of a metric over some steps of training."""
        rows = self.curves[(self.curves["estimator"] == name) & (self.curves["metric"] == metric)]
        return float(rows[(rows["step"] > after) & (rows["step"] <= until)]["value"].mean())

    def largest_early(self, metric: str) -> tuple[float, float]:
        """Return the largest value of RLOO in the first steps: of the mean over seeds, and of one run."""
        rows = self.curves[(self.curves["estimator"] == USUAL) & (self.curves["metric"] == metric)]
        early = rows[rows["step"] <= EARLY]
        return float(early.groupby("step")["value"].mean().max()), float(early["value"].max())


def share(value: float, digits: int = 0) -> str:
    """Format a share in percent, as sentences have it.

    >>> share(0.953), share(0.953, 1)
    ('95 %', '95.3 %')
    """
    return f"{100 * value:.{digits}f} %"


def answer(folder: Path) -> str:
    """Return how many runs reach the target with distinct and with independent completions."""
    dense, sparse = Task(folder), Task(folder / "sparse")
    return (
        f"A small GPT that learns to sort solves {share(dense.target)} of the prompts within {dense.last} "
        f"steps in {dense.solved(OURS)} runs with four distinct completions of each prompt (the unordered "
        f"set estimator), and in {dense.solved(USUAL)} runs with four independent ones (RLOO). From a "
        f"confident start, with a reward for completely right answers alone, {sparse.solved(OURS)} runs with "
        f"distinct completions and {sparse.solved(USUAL)} with independent ones reach "
        f"{share(sparse.target)}.\n"
    )


def tasks(folder: Path) -> str:
    """Return a table of both tasks and both estimators."""
    lines = []
    for title, part in (("share of correct tokens", folder), ("sparse", folder / "sparse")):
        task = Task(part)
        for name in (OURS, USUAL):
            steps = task.steps(name)
            cells = [f"{share(task.target)}, {task.measure}", task.solved(name)]
            bound = "≥ " if task.runs(name)["steps"].isna().any() else ""
            cells += [middle(steps.tolist(), task.last), f"{bound}{steps.mean():.1f}"]
            cells += [task.saved() if name == OURS else "–"]
            cells += [f"{task.late(name, metric):.2f}" for metric in ("duplicates", "no_signal")]
            lines.append([title, appearance(name).label, *cells])
    late = f"last {LATE} steps"
    header = ["reward", "estimator", "target", "runs that reach it", "median step", "mean step"]
    header += [f"steps saved ({INTERVAL})"]
    return markdown([*header, f"duplicates, {late}", f"groups without signal, {late}"], lines)


def steps(folder: Path) -> str:
    """Return the steps until the target by estimator and seed, as the command lm-figures prints them."""
    task = Task(folder)
    rows = task.reached.astype(object).where(task.reached.notna(), None)
    reached = [Reached(*row) for row in rows[list(Reached._fields)].itertuples(index=False)]
    return steps_table(reached, task.target, task.measure)


def confidence(folder: Path) -> str:
    """Return how often independent completions repeat, early and late, and the effective sample sizes."""
    task = Task(folder)
    mean, single = task.largest_early("duplicates")
    of, first, last = "share of duplicates of RLOO", f"first {EARLY} steps", f"last {LATE} steps"
    lines = [
        [f"{of}, largest in the {first}, mean over seeds", share(mean, 1)],
        [f"{of}, largest in the {first}, single run", share(single, 1)],
        [f"{of}, mean of the {last}", share(task.late(USUAL, "duplicates"), 1)],
    ]
    for name in in_order(task.curves["estimator"])[::-1]:
        size, label = task.late(name, "effective_sample_size"), appearance(name).label
        lines.append([f"effective sample size, {label}, mean of the {last}", f"{size:.2f}"])
    return markdown(["quantity", "value"], lines)
