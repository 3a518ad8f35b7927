"""The command ``vae-figures``: its files, its legend, and what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from reproduction.harness.drawing import smoothed
from reproduction.harness.errors import UserError
from reproduction.vae.command import vae_figures
from reproduction.vae.curves import elbo_table, read_curves
from reproduction.vae.figures import curves_figure
from reproduction.vae.settings import VAEFigures


def test_the_figures_are_drawn(run: Path, tmp_path: Path) -> None:
    folder = vae_figures(VAEFigures(runs=(run,), out=tmp_path / "figures"))
    assert {p.name for p in folder.iterdir()} == {
        "curves.csv",
        "curves.md",
        "curves.png",
        f"images-{run.name}.png",
        "settings.json",
    }
    points = read_curves([run], 5)
    assert list(points[points["split"] == "valid"]["epoch"]) == [1.0, 2.0]
    assert (points["smoothed"] == points["negative_elbo"]).all()  # too few points
    better = points.assign(estimator="arsm", smoothed=points["smoothed"] - 1.0)
    legend = curves_figure(pd.concat([points, better]), 5).axes[0].get_legend()
    values = [float(t.get_text().split()[0]) for t in legend.get_texts()]
    assert values == sorted(values)
    assert values[1] == round(points[points["split"] == "train"]["smoothed"].min(), 1)
    for changes, message in [
        ({"runs": ()}, "no runs were given"),
        ({"runs": (run, run.parent / "." / run.name)}, "a run was given twice"),
        ({"smoothing": 0}, "smoothing is 0"),
    ]:
        with pytest.raises(UserError, match=message):
            vae_figures(replace(VAEFigures(runs=(run,), out=tmp_path / "refused"), **changes))
    assert not (tmp_path / "refused").exists()


def test_a_comparison_stands_for_its_runs(run: Path, tmp_path: Path) -> None:
    earlier = vae_figures(VAEFigures(runs=(run,), out=tmp_path / "earlier", smoothing=1))
    second = tmp_path / "second"
    shutil.copytree(run, second)
    settings = json.loads((run / "settings.json").read_text())
    settings["settings"]["seed"] += 1
    (second / "settings.json").write_text(json.dumps(settings))
    old = pd.read_csv(earlier / "curves.csv").drop(columns=["batch_size", "clip", "log_every"])
    old.to_csv(earlier / "curves.csv", index=False)  # as written before these were columns
    both = vae_figures(VAEFigures(runs=(earlier, second), out=tmp_path / "both", smoothing=1))
    points = pd.read_csv(both / "curves.csv")
    runs = read_curves([run, second], 1)
    assert list(points["negative_elbo"]) == pytest.approx(list(runs["negative_elbo"]))
    assert list(points["run"].unique()) == [run.name, "second"]
    assert "2 runs" in elbo_table(points)  # of one group
    assert {p.name for p in both.glob("images-*")} == {"images-second.png"}
    with pytest.raises(UserError, match=f"a run of {run.name} with seed"):
        vae_figures(VAEFigures(runs=(earlier, run), out=tmp_path / "twice"))


def test_the_curves_of_a_comparison_are_smoothed_anew(tmp_path: Path) -> None:
    raw = [float(epoch**2) for epoch in range(12)]
    curves = [
        pd.DataFrame({"run": name, "seed": 0, "split": "train", "negative_elbo": raw})
        for name in ("one", "two")
    ]
    pd.concat(curves).assign(smoothed=0.0).to_csv(tmp_path / "curves.csv", index=False)
    assert list(read_curves([tmp_path], 3)["smoothed"]) == 2 * smoothed(raw, 3)
