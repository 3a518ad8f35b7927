"""The command ``tsp-figures``: how runs are ranked, and what their curves show."""

from __future__ import annotations

import pandas as pd
import pytest

from reproduction.harness.drawing import SEEDS
from reproduction.tsp.figures import gap_figure
from reproduction.tsp.ranking import ranking, ranking_table


def gaps_of(
    curves: dict[tuple[str, int], list[float]], *, start_trained: bool = False
) -> pd.DataFrame:
    """The validations of runs, every 100 steps from step 0 on."""
    rows = [
        {
            "estimator": estimator,
            "seed": seed,
            "steps": 100 * i,
            "instances": 12800 * i,
            "trained": i > 0 or start_trained,
            "gap": gap,
        }
        for (estimator, seed), curve in curves.items()
        for i, gap in enumerate(curve)
    ]
    return pd.DataFrame(rows)


CURVES = {
    ("rloo", 0): [90.0, 8.0, 6.0, 5.0, 3.0],
    ("rloo", 1): [95.0, 8.0, 6.0, 5.0, 4.0],
    ("unordered_set", 0): [90.0, 8.0, 7.0, 6.0, 2.0, 1.0],  # 100 steps more than the others
    ("risk", 0): [90.0, 1.0, 1.0, 1.0, 9.0],
}


def test_the_ranking_is_by_the_mean_of_the_last_quarter_of_common_steps() -> None:
    table = ranking(gaps_of(CURVES)).set_index("estimator")
    assert list(table.index) == ["unordered_set", "rloo", "risk"]
    assert set(table["steps"]) == {400}
    assert list(table["gap"]) == [2.0, 3.5, 9.0]
    assert table.loc["rloo", "seed 1"] == 4.0
    assert table.loc["rloo", "spread"] == pytest.approx(0.5**0.5, abs=1e-4)
    assert table["spread"].isna().sum() == 2  # one seed has no spread
    longer = {key: [curve[0], *curve[1:] * 2][:9] for key, curve in CURVES.items()}
    both = ranking(gaps_of(longer)).set_index("estimator")
    assert both.loc["rloo", "seed 0"] == 4.0  # the mean of two validations, 5 and 3


def test_a_ranking_in_markdown_has_labels_and_gaps_of_seeds() -> None:
    lines = ranking_table(ranking(gaps_of(CURVES))).splitlines()
    compared = "minus Unordered set, built-in baseline (95% interval)"
    assert lines[0] == f"| estimator | mean gap (%) | seed 0 | seed 1 | {compared} |"
    assert lines[2] == "| Unordered set, built-in baseline | 2.00 | 2.00 | – | – |"
    assert lines[3] == "| RLOO | 3.50 ± 0.71 | 3.00 | 4.00 | +1.00 (one run each) |"
    more = {("unordered_set", 1): [95.0, 8.0, 7.0, 6.0, 2.5], **CURVES}  # now both seeds of two
    assert "| +1.25 (−1.93 to +4.43) |" in ranking_table(ranking(gaps_of(more)))
    # The noise of two seeds is that of all estimators.
    more["risk", 1] = [95.0, 1.0, 1.0, 1.0, 9.75]
    assert "| +1.25 (+0.49 to +2.01) |" in ranking_table(ranking(gaps_of(more)))


def test_a_curve_is_the_mean_of_thin_lines_for_the_seeds() -> None:
    figure = gap_figure(gaps_of(CURVES), "steps")
    (ax,) = figure.axes
    first, second, mean = (line for line in ax.lines if line.get_color() == "#444444")
    assert mean.get_label() == "RLOO"
    assert list(mean.get_xdata()) == [100, 200, 300, 400]  # without the untrained model
    assert list(mean.get_ydata()) == pytest.approx([8.0, 6.0, 5.0, 3.5])
    assert [line.get_ydata()[-1] for line in (first, second)] == [3.0, 4.0]
    assert ax.get_yscale() == "log"
    assert figure.legends[0].get_title().get_text() == SEEDS  # too few points to be smoothed
    (ax,) = gap_figure(gaps_of(CURVES), "instances", 1).axes
    assert ax.xaxis.get_major_formatter()(25_600) == "25.6 k"


def test_curves_from_a_trained_start_show_it_on_a_linear_axis() -> None:
    close = gaps_of({("risk", 0): [2.0, 1.9, 1.8]}, start_trained=True)
    (ax,) = gap_figure(close, "instances").axes
    assert list(ax.lines[0].get_xdata()) == [0, 12800, 25600]
    assert list(ax.lines[0].get_ydata()) == [2.0, 1.9, 1.8]
    assert ax.get_yscale() == "linear"


def test_a_mean_ends_where_the_first_of_its_runs_ends() -> None:
    (ax,) = gap_figure(
        gaps_of({("risk", 0): [9.0, 8.0, 7.0], ("risk", 1): [9.0, 6.0]}), "steps"
    ).axes
    longer, _, mean = ax.lines
    assert list(longer.get_xdata()) == [100, 200]
    assert (list(mean.get_xdata()), list(mean.get_ydata())) == ([100], [7.0])


def test_smoothing_is_in_the_legend() -> None:
    gaps = gaps_of({("risk", 0): [50.0, *range(20, 10, -1)]})
    figure = gap_figure(gaps.assign(gap=gaps["gap"] ** 2), "steps", 3)
    assert figure.legends[0].get_title().get_text() == f"{SEEDS} (means of 3 validations)"
    raw, smooth = figure.axes[0].lines
    assert list(raw.get_ydata())[:3] == [400.0, 361.0, 324.0]
    assert list(smooth.get_ydata())[:2] == pytest.approx([400.0, (400 + 361 + 324) / 3])


def test_lines_that_coincide_have_different_widths() -> None:
    (ax,) = gap_figure(gaps_of({(n, 0): [9.0, 8.0] for n in ("rloo", "risk")}), "steps").axes
    below, above = ax.lines
    assert below.get_linewidth() > above.get_linewidth()
    assert below.get_zorder() < above.get_zorder()
