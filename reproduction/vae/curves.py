"""Curves of the −ELBO: read from runs, grouped by settings, and tabulated beside the paper's.

A folder that the command ``vae-figures`` wrote stands for the runs that it was made from. So runs can be
added to a comparison whose own runs are no longer there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from reproduction.harness.appearance import appearance
from reproduction.harness.drawing import smoothed
from reproduction.harness.errors import UserError, check_one_of_each
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import read_settings
from reproduction.harness.tables import committed_table, markdown
from reproduction.vae.published import WINDOW, Domain, paper_elbo
from reproduction.vae.settings import VAESettings

LISTED = 3  # up to this many runs, a table has a number for each
MILESTONES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
COLUMNS = 4  # of epochs
DETAILS = {
    "learning_rate": "learning rate {:g}",
    "batch_size": "batches of {}",
    "clip": "gradients clipped at {}",
    "log_every": "means of {} steps",
    "output_bias": "output bias from the mean image",
}
"""Settings that are not the usual ones, in words."""
CURVES = "curves.csv"
SPLITS = {"train": "training", "valid": "validation"}
SETTINGS = [*Domain._fields, "estimator", "k", *DETAILS]
"""Columns that tell runs apart, except for the seed; tables may lack some of them."""


class Group(NamedTuple):
    """Curves of one split, of runs that differ in their seed alone: settings, and rows of ``curves.csv``."""

    settings: Mapping[str, Any]
    points: pd.DataFrame

    @property
    def curves(self) -> list[pd.DataFrame]:
        """The points of every run."""
        return [points for _, points in self.points.groupby("run", sort=False)]

    @property
    def smoothed(self) -> list[pd.Series[float]]:
        """The smoothed values by epoch of every run, or the mean of more than three runs."""
        curves = [curve.set_index("epoch")["smoothed"] for curve in self.curves]
        return curves if len(curves) <= LISTED else [pd.concat(curves, axis=1).mean(axis=1)]

    @property
    def lowest(self) -> list[float]:
        """The lowest smoothed value of every run."""
        return [float(curve["smoothed"].min()) for curve in self.curves]

    @property
    def lowest_means(self) -> list[float]:
        """The lowest mean of so many epochs as the paper averages, of every run that has them."""
        return [min(means) for means in map(window_means, self.curves) if means]

    @property
    def details(self) -> list[str]:
        """The settings that are not the usual ones, in words."""
        default = VAESettings(estimator=self.settings["estimator"])
        usual = vars(default) | {"learning_rate": default.rate}
        given = {name: self.settings.get(name, usual[name]) for name in DETAILS}
        unusual = {n: x for n, x in given.items() if x != usual[n] and not pd.isna(x)}
        return [DETAILS[name].format(value) for name, value in unusual.items()]

    @property
    def short_name(self) -> str:
        """The name of the estimator, and its number of samples."""
        return f"{appearance(self.settings['estimator']).label}, k = {self.settings['k']}"

    @property
    def name(self) -> str:
        """The name of the group in tables."""
        runs = [f"{len(self.curves)} runs"] if len(self.curves) > 1 else []
        return ", ".join([self.short_name, *self.details, *runs])

    def at(self, epoch: int) -> str:
        """Format the raw values at the end of an epoch."""
        return spread(self.points[self.points["epoch"] == epoch]["negative_elbo"].tolist())


def window_means(curve: pd.DataFrame, window: int = WINDOW) -> list[float]:
    """Return the means over all ``window`` consecutive epochs of a curve."""
    epoch, raw = curve["epoch"], curve["negative_elbo"]
    ends = range(window, int(epoch.iloc[-1]) + 1)
    return [float(raw[(epoch > end - window) & (epoch <= end)].mean()) for end in ends]


def grouped(points: pd.DataFrame, split: str) -> list[Group]:
    """Group the curves of a split that differ in their seed alone; the lowest group comes first."""
    keys = [name for name in SETTINGS if name in points]
    parts = points[points["split"] == split].groupby(keys, sort=False, dropna=False)
    groups = [Group(dict(zip(keys, values, strict=True)), part) for values, part in parts]
    return sorted(groups, key=lambda group: fmean(group.lowest))


def by_domain(points: pd.DataFrame) -> list[tuple[Domain, pd.DataFrame]]:
    """Return the points of every domain; runs of different domains are not compared."""
    return [(Domain(*found), part) for found, part in points.groupby(list(Domain._fields))]


def common_details(groups: Sequence[Group]) -> list[str]:
    """Return the unusual settings that all groups share."""
    return [d for d in groups[0].details if all(d in group.details for group in groups)]


def spread(values: Sequence[float]) -> str:
    """Format one number for each of up to three runs, or the mean ± half the range of more.

    >>> spread([1.0, 1.5]), spread([2.0]), spread([]), spread([1.0, 2.0, 3.0, 4.0])
    ('1.0, 1.5', '2.0', '', '2.5 ± 1.5')
    """
    if len(values) <= LISTED:
        return ", ".join(f"{value:.1f}" for value in values)
    return f"{fmean(values):.1f} ± {(max(values) - min(values)) / 2:.1f}"


def short_names(runs: Sequence[Path]) -> list[str]:
    """Return short names of folders, all of them different.

    >>> short_names([Path("a/one"), Path("b/one"), Path("a/two")])
    ['a-one', 'b-one', 'two']
    """
    whole = [run.resolve() for run in runs]
    short = [run.name for run in whole]
    return [
        f"{run.parent.name}-{name}" if short.count(name) > 1 else name
        for run, name in zip(whole, short, strict=True)
    ]


def read_curves(folders: Sequence[Path], smoothing: int) -> pd.DataFrame:
    """Read the curves of runs and of earlier comparisons; no run may be in two of the folders."""
    curves = [
        read_run(folder, name, smoothing) if is_run(folder) else _read_comparison(folder, smoothing)
        for name, folder in zip(short_names(folders), folders, strict=True)
    ]
    names = (part[["run", "seed"]].drop_duplicates().itertuples(index=False) for part in curves)
    check_one_of_each((name, seed) for part in names for name, seed in part)
    return pd.concat(curves, ignore_index=True)


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, and not of an earlier comparison."""
    return not (folder / CURVES).is_file()


def _read_comparison(folder: Path, smoothing: int) -> pd.DataFrame:
    """Read the curves of an earlier comparison; a setting that it has no column for was the usual one."""
    points = committed_table(folder / CURVES)
    usual = vars(VAESettings())
    raw = points.groupby(["run", "seed", "split"])["negative_elbo"]
    smooth = raw.transform(lambda values: smoothed(values.tolist(), smoothing))
    missing = {name: usual[name] for name in DETAILS if name not in points}
    return points.assign(smoothed=smooth, **missing)


def read_run(run: Path, name: str, smoothing: int) -> pd.DataFrame:
    """Read the curves of a run, without the untrained model, whose value is off the scale."""
    trained = read_settings(VAESettings, run)
    valid = [r for r in read_records(run, "valid") if r["epoch"]]
    if not valid:
        raise UserError(f"{run} has no finished epoch; expected at least one. Train it further.")
    per_epoch = valid[0]["step"] / valid[0]["epoch"]
    used = vars(trained) | {"k": trained.samples, "learning_rate": trained.rate}
    settings = {setting: used[setting] for setting in (*SETTINGS, "seed")}
    parts = []
    for split, records in (("train", list(read_records(run, "train"))), ("valid", valid)):
        raw = [float(record["negative_elbo"]) for record in records]
        epochs = [round(record["step"] / per_epoch, 4) for record in records]
        columns = {"epoch": epochs, "negative_elbo": raw, "smoothed": smoothed(raw, smoothing)}
        parts.append(pd.DataFrame({"run": name, **settings, "split": split, **columns}))
    return pd.concat(parts, ignore_index=True)


def elbo_table(points: pd.DataFrame) -> str:
    """Return a table for each domain: the −ELBO at some epochs, its lowest value, and the paper's."""
    return "\n".join(_table(domain, part) for domain, part in by_domain(points))


def _table(domain: Domain, points: pd.DataFrame) -> str:
    train = {str(group.settings): group for group in grouped(points, "train")}
    epochs = milestones(int(points["epoch"].max()))
    long = epochs[-1] >= WINDOW
    means = [f"lowest mean of {WINDOW} epochs", f"lowest mean of {WINDOW}, training"]
    lowest = ["lowest", "lowest, training", *(means if long else [])]
    header = ["estimator", *(f"epoch {epoch}" for epoch in epochs), *lowest]
    lines = []
    for group in grouped(points, "valid"):
        both = (group, train[str(group.settings)])
        paper = paper_elbo(group.settings["estimator"], group.settings["k"], domain)
        cells = [group.name, *map(group.at, epochs), *(spread(g.lowest) for g in both)]
        cells += [spread(g.lowest_means) for g in both if long]
        lines.append([*cells, *(["", ""] if paper is None else [f"{x:.1f}" for x in paper[::-1]])])
    header += ["paper's lowest", "paper's lowest, training"]
    return f"### {domain.title}\n\n{markdown(header, lines)}"


def milestones(longest: int) -> list[int]:
    """Return the last few round numbers of epochs, and the largest number of epochs.

    >>> milestones(20), milestones(3)
    ([2, 5, 10, 20], [1, 2, 3])
    """
    return sorted({e for e in MILESTONES if e < longest} | {longest})[-COLUMNS:]
