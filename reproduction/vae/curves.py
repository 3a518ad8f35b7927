"""Curves of the −ELBO: read from runs, smoothed, grouped by settings, and tabulated beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from reproduction.harness.appearance import appearance
from reproduction.harness.errors import UserError
from reproduction.harness.metrics import read_records
from reproduction.harness.settings import may_change, read_settings
from reproduction.harness.tables import markdown
from reproduction.vae.published import WINDOW, Domain, paper_elbo
from reproduction.vae.settings import VAESettings

LISTED = 3  # up to this many runs, a table has a number for each
MILESTONES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
COLUMNS = 4  # of epochs
DETAILS = {
    "rate": "learning rate {:g}",
    "batch_size": "batches of {}",
    "clip": "gradients clipped at {}",
    "log_every": "means of {} steps",
    "output_bias": "output bias {}",
}
"""How settings are named that are not the usual ones."""


class Curve(NamedTuple):
    """The −ELBO of a run on a split, over its epochs."""

    run: str
    settings: VAESettings
    split: str
    epochs: list[float]
    raw: list[float]
    smooth: list[float]

    @property
    def fixed(self) -> dict[str, object]:
        """The settings that tell runs apart, except for the seed."""
        free = may_change(self.settings) | {"seed", "cpu"}
        used = asdict(self.settings) | {
            "k": self.settings.samples,
            "learning_rate": self.settings.rate,
        }
        return {name: value for name, value in used.items() if name not in free}

    def means(self, window: int) -> list[float]:
        """Return the means over all ``window`` consecutive epochs."""
        points = list(zip(self.epochs, self.raw, strict=True))
        ends = range(window, int(self.epochs[-1]) + 1)
        return [fmean(y for at, y in points if end - window < at <= end) for end in ends]


class Group(NamedTuple):
    """Curves of one split, of runs that differ in their seed alone."""

    curves: tuple[Curve, ...]

    @property
    def settings(self) -> VAESettings:
        """The settings of the first run."""
        return self.curves[0].settings

    @property
    def shared(self) -> str:
        """The settings that all runs share."""
        return str(self.curves[0].fixed)

    @property
    def lowest(self) -> list[float]:
        """The lowest smoothed value of every run."""
        return [min(curve.smooth) for curve in self.curves]

    @property
    def lowest_means(self) -> list[float]:
        """The lowest mean of so many epochs as the paper averages, of every run that has them."""
        return [min(means) for means in (c.means(WINDOW) for c in self.curves) if means]

    @property
    def details(self) -> list[str]:
        """What is unusual about the settings."""
        usual = VAESettings(estimator=self.settings.estimator)
        return [
            text.format(getattr(self.settings, name))
            for name, text in DETAILS.items()
            if getattr(self.settings, name) != getattr(usual, name)
        ]

    @property
    def short_name(self) -> str:
        """The name of the estimator, and its number of samples."""
        return f"{appearance(self.settings.estimator).label}, k = {self.settings.samples}"

    @property
    def name(self) -> str:
        """The name of the group in tables."""
        runs = [f"{len(self.curves)} runs"] if len(self.curves) > 1 else []
        return ", ".join([self.short_name, *self.details, *runs])

    def at(self, epoch: int) -> str:
        """Format the raw values at the end of an epoch."""
        points = [dict(zip(c.epochs, c.raw, strict=True)).get(float(epoch)) for c in self.curves]
        return spread([p for p in points if p is not None])


def grouped(curves: Sequence[Curve]) -> list[Group]:
    """Group curves of the same split that differ in their seed alone; the lowest group comes first."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(f"{curve.split} {curve.fixed}", []).append(curve)
    return sorted((Group(tuple(g)) for g in groups.values()), key=lambda g: fmean(g.lowest))


def common_details(groups: Sequence[Group]) -> list[str]:
    """Return what is unusual about the settings of all groups."""
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
    if len(set(whole)) < len(whole):
        raise UserError(f"a run was given twice: {', '.join(map(str, runs))}. Give each once.")
    short = [run.name for run in whole]
    return [
        f"{run.parent.name}-{name}" if short.count(name) > 1 else name
        for run, name in zip(whole, short, strict=True)
    ]


def read_curve(run: Path, name: str, split: str, smoothing: int) -> Curve:
    """Read the curve of a run, without the untrained model, whose value is off the scale."""
    trained = read_settings(VAESettings, run)
    valid = [r for r in read_records(run, "valid") if r["epoch"]]
    if not valid:
        raise UserError(f"{run} has no finished epoch; expected at least one. Train it further.")
    per_epoch = valid[0]["step"] / valid[0]["epoch"]
    records = valid if split == "valid" else list(read_records(run, split))
    raw = [float(r["negative_elbo"]) for r in records]
    epochs = [r["step"] / per_epoch for r in records]
    return Curve(name, trained, split, epochs, raw, smoothed(raw, smoothing))


def smoothed(values: Sequence[float], window: int) -> list[float]:
    r"""$s_t = \frac{1}{2 h + 1} \sum_{|i - t| \le h} v_i$: the mean of a centred window.

    Towards the ends the window shrinks, so that the curve neither lags nor stops short.

    >>> smoothed([1.0, 3.0, 5.0, 10.0], 3)
    [1.0, 3.0, 6.0, 10.0]
    """
    out = []
    for t in range(len(values)):
        half = min(window // 2, t, len(values) - 1 - t)
        near = values[t - half : t + half + 1]
        out.append(sum(near) / len(near))
    return out


def rows(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """Return the curves as rows of a table."""
    return [
        {
            "run": curve.run,
            "data": curve.settings.data,
            "dims": curve.settings.dims,
            "estimator": curve.settings.estimator,
            "categories": curve.settings.categories,
            "k": curve.settings.samples,
            "learning_rate": curve.settings.rate,
            "output_bias": curve.settings.output_bias,
            "seed": curve.settings.seed,
            "split": curve.split,
            "epoch": round(epoch, 4),
            "negative_elbo": raw,
            "smoothed": smooth,
        }
        for curve in curves
        for epoch, raw, smooth in zip(curve.epochs, curve.raw, curve.smooth, strict=True)
    ]


def elbo_table(curves: Sequence[Curve]) -> str:
    """Return a table for each domain: the −ELBO at some epochs, its lowest value, and the paper's."""
    domains = sorted({curve.settings.domain for curve in curves})
    return "\n".join(
        _table(domain, [c for c in curves if c.settings.domain == domain]) for domain in domains
    )


def _table(domain: Domain, curves: Sequence[Curve]) -> str:
    valid = grouped([c for c in curves if c.split == "valid"])
    train = {g.shared: g for g in grouped([c for c in curves if c.split == "train"])}
    epochs = milestones(max(int(c.epochs[-1]) for c in curves if c.split == "valid"))
    header = [
        "estimator",
        *(f"epoch {epoch}" for epoch in epochs),
        *("lowest", "lowest, training"),
        *(
            (f"lowest mean of {WINDOW} epochs", f"lowest mean of {WINDOW}, training")
            if epochs[-1] >= WINDOW
            else ()
        ),
        *("paper's lowest", "paper's lowest, training"),
    ]
    lines = [_row(group, train[group.shared], epochs, domain) for group in valid]
    title = f"{domain.data}, {domain.categories}^{domain.dims}"
    return f"### {title}\n\n{markdown(header, lines)}"


def _row(valid: Group, train: Group, epochs: Sequence[int], domain: Domain) -> list[str]:
    paper = paper_elbo(valid.settings.estimator, valid.settings.samples, domain)
    return [
        valid.name,
        *(valid.at(epoch) for epoch in epochs),
        spread(valid.lowest),
        spread(train.lowest),
        *((spread(valid.lowest_means), spread(train.lowest_means)) if epochs[-1] >= WINDOW else ()),
        *(("", "") if paper is None else (f"{paper[1]:.1f}", f"{paper[0]:.1f}")),
    ]


def milestones(longest: int) -> list[int]:
    """Return the last few round numbers of epochs, and the largest number of epochs.

    >>> milestones(20), milestones(3)
    ([2, 5, 10, 20], [1, 2, 3])
    """
    return sorted({e for e in MILESTONES if e < longest} | {longest})[-COLUMNS:]
