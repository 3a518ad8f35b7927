"""The numbers of the pages on the categorical VAE."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from reproduction.harness.appearance import appearance, in_order
from reproduction.harness.settings import read_settings
from reproduction.harness.statistics import INTERVAL, OURS, behind, between_runs, minus, minus_ours
from reproduction.harness.tables import committed_table, markdown, read_table
from reproduction.vae.curves import SPLITS, elbo_table, spread, window_means
from reproduction.vae.published import PAPER, WINDOW
from reproduction.vae.settings import VAESettings, VAEVariance
from reproduction.vae.variance import TABLE, Measurement, comparisons
from reproduction.vae.variance_table import log_variance_text, variance_table

USUAL = "rloo"
LEADERS = (OURS, USUAL)
COLLAPSED = 210.0  # nats: a posterior that is the same for all images stays above it
FIRST = 2  # epochs in which a run may collapse
EPOCHS = (10, 20)
COMPARED = f"minus {appearance(OURS).label}"


def curves(folder: Path) -> str:
    """Return the −ELBO at some epochs, as the command vae-figures prints it."""
    return elbo_table(committed_table(folder / "curves.csv"))


def answer(folder: Path) -> str:
    """Return how the two leading estimators compare with the others of the paper, and with each other."""
    large = validated(folder / "curves.csv", dims=20)
    small = validated(folder / "2-mean-image" / "curves.csv", dims=2)
    long = late_values(committed_table(folder / "20-200-epochs" / "curves.csv"))
    last = int(large["epoch"].max())
    return (
        "The unordered set estimator, which draws distinct samples, and RLOO, which draws independent ones, "
        "train a VAE with $10^{20}$ codes better than the five other estimators of Figure 2: their "
        f"validation loss is lower by at least {lead(large):.1f} nats after each of the first {last} epochs. "
        "Between the two, the loss of RLOO minus that of the unordered set estimator is "
        f"{apart(last_values(large))} nats after {last} epochs, {apart(long)} nats in the mean of epochs "
        f"{WINDOW + 1} to {2 * WINDOW}, and {apart(last_values(small))} nats with $10^2$ codes after "
        f"{small['epoch'].max():.0f} epochs.\n"
    )


def validated(path: Path, dims: int) -> pd.DataFrame:
    """Return the −ELBO of the validation images: a row per run and epoch of a domain."""
    points = committed_table(path)
    return points[(points["dims"] == dims) & (points["split"] == "valid")]


def lead(points: pd.DataFrame) -> float:
    """Return the least by which both leaders are below all other estimators at an epoch."""
    leads = points["estimator"].isin(LEADERS)
    worst = points[leads].groupby("epoch")["negative_elbo"].max()
    best = points[~leads].groupby("epoch")["negative_elbo"].min()
    return float((best - worst).min())


def last_values(points: pd.DataFrame) -> pd.DataFrame:
    """Return the −ELBO of every run after the last epoch."""
    return points[points["epoch"] == points["epoch"].max()].rename(
        columns={"negative_elbo": "value"}
    )


def late_values(points: pd.DataFrame, split: str = "valid") -> pd.DataFrame:
    """Return the mean −ELBO of the last window of epochs of every run."""
    runs = points[points["split"] == split].groupby(["estimator", "seed"])
    rows = [(*about, window_means(curve)[-1]) for about, curve in runs]
    return pd.DataFrame(rows, columns=["estimator", "seed", "value"])


def apart(values: pd.DataFrame) -> str:
    """Format the value of RLOO minus that of the unordered set estimator."""
    return between_runs(values, USUAL, OURS).text(1)


def late_means(folder: Path) -> str:
    """Return means over the last window of epochs, and where the validation curves are lowest."""
    points = committed_table(folder / "curves.csv")
    late = [late_values(points, split) for split in SPLITS]
    lines = []
    for name in in_order(points["estimator"]):
        cells = [cell for values in late for cell in _beside_ours(values, name)]
        lines.append([appearance(name).label, *cells, _lowest_epochs(points, name)])
    last = int(points["epoch"].max())
    header = ["estimator"]
    for name in SPLITS.values():
        header += [
            f"mean of epochs {last - WINDOW + 1} to {last}, {name}",
            f"{COMPARED} ({INTERVAL})",
        ]
    return markdown([*header, "epoch of the lowest smoothed validation"], lines)


def _beside_ours(values: pd.DataFrame, name: str) -> tuple[str, str]:
    """Return the values of the runs of an estimator, and how far they are from ours."""
    own = values[values["estimator"] == name]["value"].tolist()
    return spread(own), "–" if name == OURS else minus_ours(values, name, 1)


def _lowest_epochs(points: pd.DataFrame, name: str) -> str:
    """Return between which epochs the smoothed validation curves of an estimator are lowest."""
    curves = points[(points["estimator"] == name) & (points["split"] == "valid")].groupby("seed")
    epochs = [curve.loc[curve["smoothed"].idxmin(), "epoch"] for _, curve in curves]
    return " to ".join(f"{epoch:.0f}" for epoch in sorted({min(epochs), max(epochs)}))


def differences(folder: Path) -> str:
    """Return the −ELBO after the last epoch, and how far it is from that of the unordered set estimator."""
    points = committed_table(folder / "curves.csv")
    values = last_values(points[points["split"] == "valid"])
    runs = values.groupby("estimator")["value"]
    lines = []
    for name in runs.mean().sort_values().index:
        ours = name == OURS
        cells = ["–", "–"] if ours else [minus_ours(values, name, 1), behind(values, name)]
        lines.append(
            [appearance(name).label, runs.size()[name], spread(runs.get_group(name)), *cells]
        )
    value = f"−ELBO after {points['epoch'].max():.0f} epochs"
    header = ["estimator", "runs", value, f"{COMPARED} ({INTERVAL})", "behind in seeds"]
    return markdown(header, lines)


def collapse(folder: Path) -> str:
    """Return the runs of the small domain that collapse, and how many of them recover."""
    points = validated(folder / "curves.csv", dims=2)
    values = points.pivot_table("negative_elbo", ["estimator", "seed"], "epoch")
    last = values.ffill(axis=1).iloc[:, -1]
    collapsed = values[list(range(1, FIRST + 1))].max(axis=1) > COLLAPSED
    stay = collapsed & (last > COLLAPSED)
    text = (
        f"\nOf {len(values)} runs, {collapsed.sum()} have a −ELBO above {COLLAPSED:.0f} nats after one of "
        f"the first {FIRST} epochs. Of these, {(collapsed & ~stay).sum()} recover, and {stay.sum()} stay "
        "there until they end.\n"
    )
    lines = [
        [appearance(name).label, seed, *(f"{x:.1f}" for x in row[[1, 2, 5, 10]]), f"{end:.1f}"]
        for ((name, seed), row), end in zip(values.iterrows(), last, strict=True)
    ]
    epochs = [f"epoch {epoch}" for epoch in (1, 2, 5, 10)]
    return markdown(["estimator", "seed", *epochs, "last epoch"], lines) + text


def summary(folder: Path) -> str:
    """Return one table of both experiments: the −ELBO in training, and the log-variance of Table 1."""
    sets = {
        "$10^{20}$": validated(folder / "curves.csv", dims=20),
        "$10^2$": validated(folder / "2-mean-image" / "curves.csv", dims=2),
    }
    variances = {
        d: committed_table(folder / f"{d}-variance-as-released/variance.csv") for d in (20, 2)
    }
    names = in_order({*PAPER, *(n for points in sets.values() for n in points["estimator"])})
    lines = [
        [appearance(name).label]
        + [elbo(points, name, epoch) for points in sets.values() for epoch in EPOCHS]
        + [cell for dims, table in variances.items() for cell in log_variance(table, name, dims)]
        for name in sorted(names, key=lambda name: (name not in LEADERS, names.index(name)))
    ]
    trained = [f"−ELBO, {domain}, epoch {epoch}" for domain in sets for epoch in EPOCHS]
    measured = [f"log-variance, {domain}{who}" for domain in sets for who in ("", ", paper")]
    return markdown(["estimator", *trained, *measured], lines)


def elbo(points: pd.DataFrame, name: str, epoch: int) -> str:
    """Format the −ELBO of an estimator after an epoch, one number for each seed."""
    rows = points[(points["estimator"] == name) & (points["epoch"] == epoch)]
    return spread(rows["negative_elbo"].tolist()) or "–"


def log_variance(table: pd.DataFrame, name: str, dims: int) -> list[str]:
    """Format the log-variance of an estimator as measured and as published."""
    if name not in PAPER:
        return ["–", "–"]
    k = PAPER[name].k
    found = table[(table["estimator"] == name) & (table["part"] == "both") & (table["k"] == k)]
    ours = [
        log_variance_text(x, e) for x, e in found[["log_variance", "standard_error"]].to_numpy()
    ]
    return [*(ours or ["–"]), f"{PAPER[name].log_variance[dims]:.2f}"]


def variances(folder: Path) -> str:
    """Return the log-variances on the last model, as the command vae-variance prints them."""
    settings = read_settings(VAEVariance, folder)
    trained = VAESettings(data="mnist", dims=int(folder.name.partition("-")[0]))
    measured = read_table(folder / TABLE, Measurement, "vae-variance")
    last = max(m.epoch for m in measured)
    rows = comparisons(settings, trained)
    return variance_table(rows, [m for m in measured if m.epoch == last], trained.domain, settings)


def control(folder: Path) -> str:
    """Return the variance of the encoder's gradient at equal evaluations and at equal time, lowest first."""
    rows = _encoder(folder)
    rows = rows[(rows["epoch"] == rows["epoch"].max()) & (rows["k"] == rows["evaluations"].max())]
    rows = rows.merge(committed_table(folder / "times.csv"), on=["epoch", "estimator", "k"])
    base = rows.set_index("estimator").loc[USUAL]
    rows["time"] = rows["seconds"] / base["seconds"]
    rows["equal_time"] = rows["log_variance"] + rows["time"].map(math.log)
    lines = [
        [
            appearance(row["estimator"]).label,
            log_variance_text(row["log_variance"], row["standard_error"]),
            factor(base["log_variance"] - row["log_variance"]),
            f"{row['time']:.2f}",
            minus(f"{row['equal_time']:.2f}"),
        ]
        for _, row in rows.sort_values("log_variance").iterrows()
    ]
    best, fastest = (rows.loc[rows[by].idxmin()] for by in ("log_variance", "equal_time"))
    less = 100.0 * (1.0 - math.exp(best["log_variance"] - base["log_variance"]))
    below = f"{less:.0f} % below" if less < 99.0 else "far below"
    k = int(base["k"])
    lowest, at_equal_time = (appearance(row["estimator"]).label for row in (best, fastest))
    text = (
        f"\nLowest at {k} evaluations: {lowest}, {below} the variance of RLOO. "
        f"Lowest at equal time: {at_equal_time}.\n"
    )
    header = [f"log-variance, {k} evaluations", "variance of RLOO ÷ its own", "time ÷ that of RLOO"]
    return markdown(["estimator", *header, "log-variance at equal time"], lines) + text


def factor(log_ratio: float) -> str:
    """Format a ratio of variances from its logarithm.

    >>> factor(0.43), factor(15.1)
    ('1.54', '3.6e+06')
    """
    ratio = math.exp(log_ratio)
    return f"{ratio:.2f}" if ratio < 1e4 else f"{ratio:.1e}"


def control_epochs(folder: Path) -> str:
    """Return the log-variance of the encoder's gradient minus that of RLOO, along training."""
    rows = _encoder(folder)
    table = rows.pivot_table("log_variance", "epoch", "estimator")
    relative = table.sub(table[USUAL], axis=0)
    names = [name for name in in_order(table.columns) if name != USUAL]
    lines = [
        [epoch, f"{table.loc[epoch, USUAL]:.2f}", *(minus(f"{x:+.2f}") for x in row)]
        for epoch, row in relative[names].iterrows()
    ]
    return markdown(
        ["epoch", "RLOO", *(f"{appearance(n).label}, minus RLOO" for n in names)], lines
    )


def control_training(folder: Path) -> str:
    """Return the validation −ELBO of runs with a control variate, beside those of the leading estimators."""
    theirs = validated(folder.parent / "curves.csv", dims=20)
    points = pd.concat(
        [validated(folder / "curves.csv", dims=20), theirs[theirs["estimator"].isin(LEADERS)]]
    )
    at = (2, 5, *EPOCHS)
    last = points[points["epoch"] == EPOCHS[-1]].groupby("estimator")["negative_elbo"].mean()
    lines = [
        [appearance(name).label, *(elbo(points, name, epoch) for epoch in at)]
        for name in last.sort_values().index
    ]
    return markdown(["estimator", *(f"−ELBO, epoch {epoch}" for epoch in at)], lines)


def _encoder(folder: Path) -> pd.DataFrame:
    rows = committed_table(folder / "variance.csv")
    return rows[rows["part"] == "encoder"]
