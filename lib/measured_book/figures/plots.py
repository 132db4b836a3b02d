"""Plots that several chapters share: strips of seeds, lines with a band, tables of colours, letters on panels.

All are plain matplotlib inside a function that `style.themed` draws once for each theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from measured_transformer.viewer.style import COLOURS, WIDTH, look, theme
from numpy.typing import ArrayLike, NDArray
from scipy import stats

FEWEST_FOR_A_BAR = 3
"""So many seeds a mean must have for its interval to be drawn."""


def subplots(
    rows: int = 1, columns: int = 1, *, height: float = 3.6, **kwargs: Any
) -> tuple[Figure, Any]:
    """`matplotlib.pyplot.subplots` at the width of the page.

    Args:
        rows: rows of panels; on a telephone, panels below one another read best.
        columns: columns of panels.
        height: height of one row in inches.
        kwargs: what else `matplotlib.pyplot.subplots` takes.

    Returns:
        The figure and its axes, as `matplotlib.pyplot.subplots` returns them.
    """
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, rows * height), **kwargs)
    return figure, axes


def mean_and_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the mean over seeds and its Student t interval: (mean, low, high).

    With a single value the interval has no width.

    Raises:
        ValueError: no values, more than one axis, or a confidence outside (0, 1).
    """
    sample = np.asarray(values, dtype=float)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"expected one value a seed, got an array of shape {sample.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
    mean = float(sample.mean())
    if sample.size == 1:
        return mean, mean, mean
    error = sample.std(ddof=1) / np.sqrt(sample.size)
    half = float(stats.t.ppf(0.5 + confidence / 2, sample.size - 1) * error)
    return mean, mean - half, mean + half


def mean_and_bar(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the mean over seeds and the bar to draw for its interval: (mean, low, high).

    From two seeds the bar has no width: their interval reaches 12.7 standard errors to either side, and
    a panel would show that and nothing else.

    Raises:
        ValueError: as `mean_and_interval`.
    """
    mean, low, high = mean_and_interval(values, confidence)
    if np.size(values) < FEWEST_FOR_A_BAR:
        return mean, mean, mean
    return mean, low, high


def seed_strip(
    axes: Axes,
    groups: Mapping[str, ArrayLike],
    *,
    label: str,
    concepts: Mapping[str, str] | None = None,
    confidence: float = 0.95,
    reference: float | None = None,
) -> None:
    """Draw one row a group: a dot for every seed, a diamond for their mean, a bar for its interval.

    Fewer than three seeds have no bar, see `mean_and_bar`.

    Args:
        axes: where to draw.
        groups: name of the row -> one value a seed.
        label: what the values are, with their unit.
        concepts: name of the row -> key of `COLOURS`; needed where the two differ.
        confidence: of the t interval of the mean.
        reference: a value to mark with a dashed line, such as chance or the best possible loss.

    Raises:
        ValueError: there is no group, a group has no values, or a concept is not in the palette.
    """
    if not groups:
        raise ValueError("expected at least one group of values, got none")
    if reference is not None:
        axes.axvline(reference, color=theme().ink, linestyle="--", linewidth=1)
    names = list(groups)
    for row, name in enumerate(names):
        concept = (concepts or {}).get(name, name)
        colour = look(concept)["color"]
        values = np.asarray(groups[name], dtype=float)
        mean, low, high = mean_and_bar(values, confidence)
        spread = _spread(values.size)
        axes.plot(values, row + spread, "o", color=colour, alpha=0.55, markersize=5, mew=0)
        axes.plot([low, high], [row, row], color=theme().ink, linewidth=1.6, zorder=3)
        axes.plot(mean, row, marker="D", color=colour, mec=theme().ink, markersize=8, zorder=4)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)


def seed_lines(
    axes: Axes,
    x: ArrayLike,
    values: ArrayLike,
    *,
    concept: str,
    label: str | None = None,
    marker_every: int | None = None,
) -> None:
    """Draw a faint line for every seed and a strong one for their mean.

    Args:
        axes: where to draw.
        x: positions, one for each column of `values`.
        values: shape (seed, x), or (x,) for a single exact curve.
        concept: key of `COLOURS`; gives colour, line style and marker.
        label: in the legend; the concept's name unless given, and "" leaves the line out of it.
        marker_every: a marker at every so many points; about ten markers unless given.

    Raises:
        ValueError: the columns of `values` do not fit `x`, or the concept is not in the palette.
    """
    across = np.asarray(x, dtype=float)
    rows = np.atleast_2d(np.asarray(values, dtype=float))
    if across.ndim != 1 or rows.ndim != 2 or rows.shape[1] != across.size:
        raise ValueError(
            f"expected values of shape (seed, {across.size}) for {across.size} positions, "
            f"got {np.shape(values)}"
        )
    style = look(concept)
    if len(rows) > 1:
        for row in rows:
            axes.plot(across, row, color=style["color"], alpha=0.3, linewidth=0.9)
    axes.plot(
        across,
        rows.mean(axis=0),
        **style,
        label=(concept if label is None else label) or "_nolegend_",
        markevery=marker_every or max(1, across.size // 10),
        zorder=3,
    )


def heat_map(
    axes: Axes,
    matrix: ArrayLike,
    *,
    label: str,
    x_label: str,
    y_label: str,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
) -> Colorbar:
    """Draw a matrix with its first row on top, beside a colour bar that says what the colours mean.

    Args:
        axes: where to draw.
        matrix: shape (row, column).
        label: what the colours measure, with its unit.
        x_label: what the columns are.
        y_label: what the rows are.
        diverging: the sign matters; colours then part at zero, with equal steps on both sides.
        limits: lowest and highest value shown; those of the matrix unless given.

    Returns:
        The colour bar, for its ticks.

    Raises:
        ValueError: the matrix does not have two axes.
    """
    cells: NDArray[np.float64] = np.asarray(matrix, dtype=float)
    if cells.ndim != 2:
        raise ValueError(f"expected a matrix of two axes, got shape {cells.shape}")
    low, high = limits or (float(np.nanmin(cells)), float(np.nanmax(cells)))
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if diverging:
        reach = max(abs(low), abs(high)) or 1.0
        image = axes.imshow(
            cells,
            cmap=_diverging_map(),
            norm=TwoSlopeNorm(0.0, -reach, reach),
            aspect="auto",
            interpolation="nearest",
        )
    else:
        image = axes.imshow(
            cells, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest"
        )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))  # there is no row 2.5
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def panel_letters(axes: Iterable[Axes] | NDArray[Any]) -> None:
    """Write (a), (b), ... above the panels, in reading order, so that a caption can name them."""
    for place, each in enumerate(np.ravel(np.asarray(list(axes), dtype=object))):
        each.set_title(f"({chr(ord('a') + place)})", loc="left", fontweight="bold")


def legend_above(axes: Axes, *, columns: int = 3) -> None:
    """Put the legend above the panel, where it hides no data on a narrow screen.

    Args:
        axes: the panel.
        columns: names beside one another; long names need fewer.
    """
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2)


def _spread(count: int) -> NDArray[np.float64]:
    """Offsets that keep the dots of equal seeds apart, the same on every drawing."""
    pattern: Sequence[float] = (0.0, 0.16, -0.16, 0.26, -0.26)
    return np.array([pattern[place % len(pattern)] for place in range(count)])


def _diverging_map() -> LinearSegmentedColormap:
    """Blue below zero, orange above, the page's own colour at zero."""
    ends = (COLOURS["residual"], theme().paper, COLOURS["attention"])
    return LinearSegmentedColormap.from_list("measured-diverging", ends, N=257)  # one for zero
