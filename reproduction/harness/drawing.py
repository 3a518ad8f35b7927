"""Drawing: the parts that figures share, and the stamp that tells whether a picture is up to date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from reproduction.harness.appearance import Appearance

FEWEST = 10  # points that are smoothed
HIGHEST = 8.0  # place of a line of no width above all others
DASHES = 4.0  # length of a line of a legend, in which the pattern of a wide one repeats
SEEDS = "thin: one seed; thick: the mean, as long as all seeds last"
STAMP = "Stamp"
Item = TypeVar("Item")


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure of so many inches, and its panels, (rows, columns), each with a grid."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend_below(figure: Figure, ax: Axes, columns: int = 2, **options: Any) -> None:
    """Put the legend of one panel below all panels."""
    handles, labels = ax.get_legend_handles_labels()
    style: dict[str, Any] = {
        "ncols": columns,
        "frameon": False,
        "fontsize": 9,
        "handlelength": DASHES,
    }
    figure.legend(handles, labels, loc="outside lower center", **style | options)


def legend_under(ax: Axes, title: str) -> None:
    """Put the legend of a panel under its horizontal axis, so that it hides no curve."""
    style: dict[str, Any] = {
        "frameon": False,
        "fontsize": 8,
        "title_fontsize": 8,
        "handlelength": DASHES,
    }
    style |= {"loc": "upper left", "bbox_to_anchor": (0.0, -0.13), "alignment": "left"}
    ax.legend(title=title, **style)


def nested(items: Sequence[Item]) -> Iterator[tuple[Item, float]]:
    """Pair what is drawn with widths of lines, in turn wide and thin, no two of them equal.

    Wide lines are drawn below thin ones, so that both show where they coincide.

    >>> list(nested(["first", "second"]))
    [('first', 3.2), ('second', 1.4)]
    """
    wide, thin = np.linspace(3.2, 2.8, len(items)), np.linspace(1.6, 1.4, len(items))
    for i, item in enumerate(items):
        yield item, float(thin[i] if i % 2 else wide[i])


def draw_runs(
    ax: Axes,
    runs: pd.DataFrame,
    x: str,
    y: str,
    look: Appearance,
    *,
    width: float = 1.8,
    window: int = 1,
) -> None:
    """Draw a thin line for the run of every seed, and a thick one for their mean.

    The mean ends where the first run ends, since a mean over fewer runs would jump. Only the mean is
    smoothed, over a window of points.
    """
    by_seed = runs.pivot(index=x, columns="seed", values=y)
    if by_seed.shape[1] > 1 or window > 1:
        ax.plot(by_seed.index, by_seed, color=look.colour, alpha=0.4, linewidth=0.7)
    mean = by_seed.mean(axis=1, skipna=False).dropna()
    smooth = smoothed(mean.tolist(), window)
    style = look.line_style | {"linewidth": width, "zorder": HIGHEST - width}
    ax.plot(mean.index, smooth, label=look.label, **style)


def draw_errors(
    ax: Axes,
    x: Sequence[float],
    y: Sequence[float],
    error: Sequence[float],
    look: Appearance,
    *,
    width: float = 1.4,
) -> None:
    """Draw points with error bars of two standard errors; a wide line has large markers."""
    twice = 2.0 * np.asarray(error)
    style = look.line_style | look.point_style | {"markersize": 3.5 + width, "linewidth": width}
    ax.errorbar(x, y, twice, label=look.label, elinewidth=1.4, zorder=HIGHEST - width, **style)


def logarithmic(ax: Axes, numbers: pd.Series[float]) -> None:
    """Make the vertical axis logarithmic, with ticks at 1, 1.5, 2, 3, 5 and 7, if it has several of them."""
    if numbers.max() > 5.0 * numbers.min() > 0.0:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def smoothed(values: Sequence[float], window: int) -> list[float]:
    r"""$s_t = \frac{1}{2 h + 1} \sum_{|i - t| \le h} v_i$: the mean of a centred window.

    Towards the ends the window shrinks, so that the curve neither lags nor stops short. A curve of fewer
    than ten points stays as it is.

    >>> smoothed([1.0, 3.0, 5.0, 10.0] * 3, 3)[:4], smoothed([1.0, 9.0], 3)
    ([1.0, 3.0, 6.0, 5.333333333333333], [1.0, 9.0])
    """
    out, last = [], len(values) - 1
    for t in range(len(values)):
        half = min(window // 2, t, last - t) if len(values) >= FEWEST else 0
        near = values[t - half : t + half + 1]
        out.append(sum(near) / len(near))
    return out


def stamp(figure: Figure) -> str:
    """Return a checksum of everything that a figure shows: its texts, colours, lines and numbers.

    It does not depend on the pixels, and so neither on fonts nor on the version of matplotlib.
    """
    return hashlib.sha256("\n".join(_content(figure)).encode()).hexdigest()


def stamp_of(path: Path) -> str | None:
    """Return the stamp that a PNG file carries; None if it has none."""
    from PIL import Image

    with Image.open(path) as image:
        return image.info.get(STAMP)


def _content(figure: Figure) -> Iterator[str]:
    yield from (text.get_text() for text in figure.texts)
    for legend in figure.legends:
        yield from _entries(legend)
    for ax in figure.axes:
        yield f"{ax.get_title()} {ax.get_xlabel()} {ax.get_ylabel()}"
        yield f"{ax.get_xscale()} {ax.get_yscale()}"
        yield from (text.get_text() for text in ax.texts)
        for line in ax.lines:
            look = (line.get_color(), line.get_linestyle(), line.get_linewidth())
            marker = (line.get_marker(), line.get_markerfacecolor())
            yield f"{line.get_label()} {look} {marker} {_numbers(line.get_xydata())}"
        for collection in ax.collections:
            paths = [path.vertices for path in collection.get_paths()]
            colours = np.concatenate([collection.get_facecolor(), collection.get_edgecolor()])
            yield f"{_numbers(colours)} {' '.join(map(_numbers, paths))}"
        yield from (_numbers(image.get_array()) for image in ax.images)
        if (own := ax.get_legend()) is not None:
            yield from _entries(own)


def _entries(legend: Legend) -> Iterator[str]:
    yield from (text.get_text() for text in (legend.get_title(), *legend.get_texts()))


def _numbers(array: Any) -> str:
    """The numbers of an array to six digits, so that rounding on another machine does not matter."""
    return " ".join(f"{number:.6g}" for number in np.ravel(array).tolist())
