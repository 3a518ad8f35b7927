"""Curves of runs: grouped by their settings, in figures and beside the paper's numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from reproduction.vae.curves import common_details, elbo_table, grouped, window_means
from reproduction.vae.figures import curves_figure
from reproduction.vae.settings import VAESettings


def curve(split: str, values: list[float], **changes: object) -> pd.DataFrame:
    """A curve with a point at the end of every epoch."""
    settings = VAESettings(data="mnist", estimator="rloo", **changes)
    used = vars(settings) | {"k": settings.samples, "learning_rate": settings.rate}
    columns = {
        "run": f"seed {settings.seed}",
        "split": split,
        "epoch": [float(i + 1) for i in range(len(values))],
        "negative_elbo": values,
        "smoothed": values,
    }
    kept = {name: value for name, value in used.items() if not isinstance(value, tuple)}
    return pd.DataFrame(kept | columns)


def test_runs_that_differ_in_their_seed_are_together() -> None:
    curves = pd.concat(
        [
            curve("valid", [10.0, 8.0, 5.0], seed=0),
            curve("valid", [12.0, 6.0], seed=1, epochs=7),  # stopped: epochs may differ
            curve("valid", [20.0, 20.0], k=8),
            curve("train", [3.0, 2.0]),
            curve("train", [5.0, 1.0], seed=1),
            curve("train", [9.0, 9.0], k=8),
        ]
    )
    first, second = grouped(curves, "valid")
    assert first.name == "RLOO, k = 4, 2 runs"
    assert second.name == "RLOO, k = 8"
    (third,) = grouped(curve("valid", [9.0], output_bias="mean-image"), "valid")
    assert third.name == f"{first.name[:-8]}, output bias from the mean image"
    assert common_details([first, second, third]) == []
    assert common_details([third]) == ["output bias from the mean image"]
    assert third.short_name == first.short_name
    (other,) = grouped(curve("valid", [9.0], log_every=10, clip=1.0, batch_size=5), "valid")
    assert other.details == ["batches of 5", "gradients clipped at 1.0", "means of 10 steps"]
    assert [len(ax.get_legend().get_texts()) for ax in curves_figure(curves, 1).axes] == [2, 2]
    assert elbo_table(curves).splitlines()[4:] == [
        f"| {first.name} | 10.0, 12.0 | 8.0, 6.0 | 5.0 | 5.0, 6.0 | 2.0, 1.0 | 89.8 | 70.4 |",
        f"| {second.name} | 20.0 | 20.0 |  | 20.0 | 9.0 | 90.8 | 70.3 |",
    ]


def test_a_table_without_a_column_has_its_default() -> None:
    (group,) = grouped(curve("valid", [9.0]).drop(columns=["output_bias", "clip"]), "valid")
    assert group.details == []


def test_the_legend_says_what_is_smoothed() -> None:
    raw = pd.concat([curve(split, [9.0, 8.0, 7.0]) for split in ("train", "valid")])
    titles = []
    for points in (raw, raw.assign(smoothed=raw["smoothed"] + 1.0)):
        ax, *_ = curves_figure(points, 3).axes
        titles.append(ax.get_legend().get_title().get_text())
    lowest = "lowest value by seed, or mean ± half the range"
    assert titles == [lowest, f"{lowest}; thick: means of 3 points"]


def test_more_samples_of_the_same_estimator_have_markers() -> None:
    points = [curve(split, [9.0, 8.0], k=k) for split in ("train", "valid") for k in (4, 8)]
    ax, *_ = curves_figure(pd.concat(points), 3).axes
    thick = {line.get_label().split("k = ")[-1]: line.get_marker() for line in ax.lines[1::2]}
    assert thick == {"4": "None", "8": "s"}


@pytest.mark.parametrize(("seeds", "thick"), [(3, 3), (4, 1)])
def test_many_seeds_have_one_thick_line(seeds: int, thick: int) -> None:
    points = [
        curve(split, [9.0, 8.0 + seed]).assign(seed=seed, run=f"run-{seed}")
        for split in ("train", "valid")
        for seed in range(seeds)
    ]
    ax, *_ = curves_figure(pd.concat(points), 3).axes
    lines = [line for line in ax.lines if line.get_linewidth() > 1]
    assert len(lines) == thick
    assert lines[-1].get_ydata()[-1] == (8.0 + seeds - 1 if thick == seeds else 9.5)
    low, high = ax.get_ylim()
    assert low < 8.0 and high > 8.0 + seeds - 1  # no run is outside of the panel


def test_long_runs_have_the_lowest_mean_of_as_many_epochs_as_in_the_paper() -> None:
    rising = [100.0] * 10 + [80.0] * 100 + [90.0] * 10
    assert window_means(curve("valid", rising))[10:] == [80.0 + i / 10 for i in range(11)]
    curves = [
        curve("valid", rising),
        curve("train", rising[:100]),
        curve("valid", rising[:99], k=8),
        curve("train", rising[:99], k=8),
    ]
    header, _, *rows = elbo_table(pd.concat(curves)).splitlines()[2:]
    assert header.split(" | ")[-4:-2] == [
        "lowest mean of 100 epochs",
        "lowest mean of 100, training",
    ]
    assert [row.split(" | ")[-4:-2] for row in rows] == [["80.0", "82.0"], ["", ""]]
    assert "lowest mean" not in elbo_table(pd.concat(curves[2:]))
