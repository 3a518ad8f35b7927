"""Curves of runs: grouped by their settings, in figures and beside the paper's numbers."""

from __future__ import annotations

from reproduction.vae.curves import Curve, common_details, elbo_table, grouped
from reproduction.vae.figures import curves_figure
from reproduction.vae.settings import VAESettings


def curve(split: str, values: list[float], **changes: object) -> Curve:
    """A curve with a point at the end of every epoch."""
    epochs = [float(i + 1) for i in range(len(values))]
    settings = VAESettings(data="mnist", estimator="rloo", **changes)
    return Curve("run", settings, split, epochs, values, values)


def test_runs_that_differ_in_their_seed_are_together() -> None:
    curves = [
        curve("valid", [10.0, 8.0, 5.0], seed=0),
        curve("valid", [12.0, 6.0], seed=1, epochs=7),  # stopped: epochs may differ
        curve("valid", [20.0, 20.0], k=8),
        curve("train", [3.0, 2.0]),
        curve("train", [5.0, 1.0], seed=1),
        curve("train", [9.0, 9.0], k=8),
    ]
    first, second = grouped(curves[:3])
    assert first.name == "RLOO, k = 4, 2 runs"
    assert second.name == "RLOO, k = 8"
    (third,) = grouped([curve("valid", [9.0], output_bias="mean-image")])
    assert third.name == f"{first.name[:-8]}, output bias mean-image"
    assert common_details([first, second, third]) == []
    assert common_details([third]) == ["output bias mean-image"]
    assert third.short_name == first.short_name
    (other,) = grouped([curve("valid", [9.0], log_every=10, clip=1.0, batch_size=5)])
    assert other.details == ["batches of 5", "gradients clipped at 1.0", "means of 10 steps"]
    assert [len(ax.get_legend().get_texts()) for ax in curves_figure(curves).axes] == [2, 2]
    assert elbo_table(curves).splitlines()[4:] == [
        f"| {first.name} | 10.0, 12.0 | 8.0, 6.0 | 5.0 | 5.0, 6.0 | 2.0, 1.0 | 89.8 | 70.4 |",
        f"| {second.name} | 20.0 | 20.0 |  | 20.0 | 9.0 | 90.8 | 70.3 |",
    ]


def test_long_runs_have_the_lowest_mean_of_as_many_epochs_as_in_the_paper() -> None:
    rising = [100.0] * 10 + [80.0] * 100 + [90.0] * 10
    assert curve("valid", rising).means(100)[10:] == [80.0 + i / 10 for i in range(11)]
    curves = [
        curve("valid", rising),
        curve("train", rising[:100]),
        curve("valid", rising[:99], k=8),
        curve("train", rising[:99], k=8),
    ]
    header, _, *rows = elbo_table(curves).splitlines()[2:]
    assert header.split(" | ")[-4:-2] == [
        "lowest mean of 100 epochs",
        "lowest mean of 100, training",
    ]
    assert [row.split(" | ")[-4:-2] for row in rows] == [["80.0", "82.0"], ["", ""]]
    assert "lowest mean" not in elbo_table(curves[2:])
