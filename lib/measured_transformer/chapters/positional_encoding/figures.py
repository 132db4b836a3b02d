"""Figures about vectors that stand for positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import ArrayLike

from measured_transformer.figures.plots import (
    heat_map,
    legend_above,
    panel_letters,
    subplots,
)
from measured_transformer.figures.schemes import PRECISION_COLOURS, PRECISION_STYLES
from measured_transformer.figures.style import COLOURS, theme, themed


@themed
def word_patterns(
    first: ArrayLike, second: ArrayLike, first_words: Sequence[str], second_words: Sequence[str]
) -> Figure:
    """Two attention patterns, (query, key) each, with words on both axes."""
    figure, axes = subplots(1, 2, height=3.1)
    for each, pattern, words in zip(
        axes, (first, second), (first_words, second_words), strict=True
    ):
        weights = np.asarray(pattern, dtype=float)
        each.grid(visible=False)
        each.imshow(weights, cmap="cividis", vmin=0, vmax=1)
        for (row, column), weight in np.ndenumerate(weights):
            ink = "#000000" if weight > 0.6 else "#ffffff"
            each.text(column, row, f"{weight:.2f}", ha="center", va="center", color=ink)
        each.set_xticks(range(len(words)), words)
        each.set_yticks(range(len(words)), words)
        each.tick_params(length=0)
        for spine in each.spines.values():
            spine.set_visible(False)
        each.set_xlabel("attended to (key)")
    axes[0].set_ylabel("attending (query)")
    panel_letters(axes)
    return figure


def _dial(axes: Axes, angle: float, *, colour: str, radius: float = 1.0) -> None:
    """A hand that stands at twelve o'clock for the angle zero and turns clockwise."""
    x, y = radius * np.sin(angle), radius * np.cos(angle)
    axes.annotate(
        "",
        (x, y),
        (0, 0),
        arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2, "shrinkA": 0, "shrinkB": 0},
    )


@themed
def clocks(positions: Sequence[int], rates: ArrayLike) -> Figure:
    """One row of dials a position, one dial a frequency pair; each hand turns by its rate a position."""
    speeds = np.asarray(rates, dtype=float)
    rows, columns = len(positions), len(speeds)
    figure, axes = subplots(rows, columns, height=1.3, squeeze=False)
    for row, position in enumerate(positions):
        for column, rate in enumerate(speeds):
            each = axes[row, column]
            each.set_aspect("equal")
            each.axis("off")
            each.set_xlim(-1.15, 1.15)
            each.set_ylim(-1.15, 1.15)
            each.add_patch(Circle((0, 0), 1.0, fill=False, color=theme().faint, linewidth=1.5))
            each.plot([0, 0], [0.9, 1.0], color=theme().ink, linewidth=1.2)
            _dial(each, rate * position, colour=COLOURS["sinusoidal"])
            if row == 0:
                each.set_title(f"pair {column}", fontsize=11)
            if column == 0:
                each.text(
                    -1.35, 0, f"p = {position}", ha="right", va="center", clip_on=False, fontsize=11
                )
    return figure


@themed
def encoding_table(table: ArrayLike) -> Figure:
    """The table of position vectors, (position, d_model)."""
    figure, axes = subplots(height=4.0)
    heat_map(
        axes, table, label="entry", x_label="dimension", y_label="position $p$", diverging=True
    )
    return figure


@themed
def similarity_curve(
    similarity: ArrayLike, rising: Sequence[int] | ArrayLike, marked: Sequence[int]
) -> Figure:
    """Similarity at each distance over that at distance zero; the rising steps and some distances marked."""
    values = np.asarray(similarity, dtype=float)
    values = values / values[0]
    figure, axes = subplots(height=3.6)
    axes.plot(values, color=COLOURS["sinusoidal"], linewidth=1.4, label="falls")
    labelled = False
    for k in np.asarray(rising, dtype=int):
        axes.plot(
            [k, k + 1],
            values[k : k + 2],
            color=COLOURS["attention"],
            linewidth=3.2,
            solid_capstyle="butt",
            label="_nolegend_" if labelled else "rises",
        )
        labelled = True
    for k in marked:
        axes.plot(k, values[k], "o", color=theme().ink, markersize=7, zorder=4)
        axes.annotate(
            f"{k} apart: {values[k]:.2f}",
            (k, values[k]),
            xytext=(0, 26 if k > 60 else -26),
            textcoords="offset points",
            ha="center",
            va="center",
        )
    axes.set_xlabel("distance $k$")
    axes.set_ylabel("similarity $s(k)/s(0)$")
    axes.set_ylim(min(0.3, values.min() - 0.1), 1.05)
    legend_above(axes)
    return figure


@themed
def wavelengths(
    periods_by_width: Mapping[int, ArrayLike], *, hundreds: tuple[int, int], length: int
) -> Figure:
    """Positions per full turn of each pair, for some widths, against what the sequence can show."""
    figure, axes = subplots(height=3.8)
    marks = ("o", "s", "^")
    for (width, periods), mark in zip(periods_by_width.items(), marks, strict=False):
        values = np.asarray(periods, dtype=float)
        axes.plot(
            np.arange(len(values)) / (len(values) - 1),
            values,
            marker=mark,
            markersize=4,
            linewidth=1,
            color=COLOURS["sinusoidal"],
            alpha=1.0 if mark == "o" else 0.6,
            label=f"$d = {width}$",
        )
    axes.axhspan(*hundreds, color=COLOURS["attention"], alpha=0.22, lw=0)
    axes.text(0.02, np.sqrt(hundreds[0] * hundreds[1]), "hundreds of positions", va="center")
    axes.axhline(length, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(0.98, length * 0.82, f"a sequence of {length}", va="top", ha="right")
    axes.set_yscale("log")
    axes.set_xlabel("pair, from the fastest (0) to the slowest (1)")
    axes.set_ylabel("positions per turn")
    legend_above(axes)
    return figure


@themed
def distinct_vectors(lengths: ArrayLike, distinct: Mapping[str, ArrayLike]) -> Figure:
    """How many different position vectors rounding leaves, by the number of positions."""
    figure, axes = subplots(height=3.4)
    for (name, values), (marker, line), colour in zip(
        distinct.items(), PRECISION_STYLES[2:], PRECISION_COLOURS[2:], strict=False
    ):
        axes.plot(lengths, values, marker=marker, linestyle=line, color=colour, label=name)
    top = np.asarray(lengths, dtype=float)
    axes.plot(top, top, color=theme().ink, linewidth=1, label="one for each position")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("number of positions")
    axes.set_ylabel("distinct vectors")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=1)
    return figure
