"""Figures about vectors that stand for positions: hand examples and results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.analysis.sinusoids import rises
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from numpy.typing import ArrayLike
from xarray import Dataset

from measured_book.figures.plots import (
    heat_map,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

_CONCEPTS = {
    "none": "none",
    "random": "random",
    "learned": "learned",
    "sinusoidal": "sinusoidal",
    "count everywhere": "attention",
    "count in one entry": "attention",
    "fraction": "attention",
    "digits": "ffn",
    "fastest third": "sinusoidal",
    "middle third": "sinusoidal",
    "slowest third": "sinusoidal",
    "random 0.3": "random",
    "random 0.2": "random",
    "random 0.1": "random",
}
_BANDS = {
    "all": ("residual", "all pairs"),
    "fastest": ("attention", "fastest third"),
    "middle": ("ffn", "middle third"),
    "slowest": ("norm", "slowest third"),
}


@themed
def plot_word_patterns(
    first: ArrayLike, second: ArrayLike, first_words: Sequence[str], second_words: Sequence[str]
) -> Figure:
    """Draw two attention patterns, (query, key) each, with words on both axes."""
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


@themed
def plot_accuracy(reversal: Dataset, arms: Sequence[str], floor: float) -> Figure:
    """Draw the accuracy of some arms on reversal, a dot per seed; a dashed line at what a bag allows."""
    figure, axes = subplots(height=0.9 + 0.42 * len(arms))
    groups = {name: reversal.accuracy.sel(arm=name).values for name in arms}
    concepts = {name: _CONCEPTS[name] for name in arms}
    seed_strip(axes, groups, label="accuracy on reversal", concepts=concepts, reference=floor)
    axes.set_xlim(0, 1.05)
    return figure


@themed
def plot_nearest(reversal: Dataset) -> Figure:
    """Draw the distance of every table's two closest vectors, a dot per seed, full where the task is learned.

    Tables are in the order of that distance; beside each stands the mean accuracy.
    """
    apart = {
        name: (reversal.nearest.sel(arm=name) / reversal.word).values
        for name in _CONCEPTS
        if name not in ("none", "count everywhere")  # vectors that no layer can see
    }
    rows = sorted(apart, key=lambda name: float(np.log(apart[name]).mean()), reverse=True)
    figure, axes = subplots(height=0.9 + 0.33 * len(rows))
    for row, name in enumerate(rows):
        accuracy = reversal.accuracy.sel(arm=name).values
        style, learned = look(_CONCEPTS[name]), accuracy > 0.9
        for chosen, face in ((learned, style["color"]), (~learned, "none")):
            at = row + np.linspace(-0.2, 0.2, len(accuracy))[chosen]
            axes.plot(apart[name][chosen], at, "o", color=style["color"], mfc=face, markersize=5)
        axes.text(
            1.02,
            row,
            f"{accuracy.mean():.2f}",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=10,
        )
    axes.text(
        1.02, -0.9, "accuracy", transform=axes.get_yaxis_transform(), va="center", fontsize=10
    )
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("distance of the two closest vectors, over a word's length")
    return figure


@themed
def plot_digits_and_waves(positions: int = 16) -> Figure:
    """Draw binary digits of positions beside waves with the same periods, a column each."""
    figure, axes = subplots(1, 2, height=3.6, sharey=True)
    periods = 2 ** np.arange(1, (positions - 1).bit_length() + 1)
    fine = np.linspace(-0.5, positions - 0.5, 64 * positions + 1)[:-1]
    digits = np.round(fine)[:, None].astype(int) // (periods // 2) % 2
    waves = (1 - np.cos(2 * np.pi * ((fine[:, None] + 0.5) / periods - 0.25))) / 2
    for panel, values, concept in ((axes[0], digits, "ffn"), (axes[1], waves, "sinusoidal")):
        for column in range(len(periods)):
            panel.plot(column + 0.8 * values[:, column], fine, color=COLOURS[concept])
        panel.set_xticks(
            np.arange(len(periods)) + 0.4, [f"every {period}" for period in periods], fontsize=9
        )
        panel.tick_params(axis="x", length=0)
        panel.grid(visible=False, axis="x")
    axes[0].set_ylim(positions - 0.5, -0.5)
    axes[0].set_ylabel("position $p$")
    axes[0].set_title("(a) binary digits", loc="left")
    axes[1].set_title("(b) waves", loc="left")
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
def plot_clocks(positions: Sequence[int], rates: ArrayLike) -> Figure:
    """Draw one row of dials a position, one dial a frequency pair; each hand turns by its rate a position."""
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
def plot_table(table: ArrayLike) -> Figure:
    """Draw a table of position vectors, (position, d_model)."""
    figure, axes = subplots(height=4.0)
    heat_map(
        axes, table, label="entry", x_label="dimension", y_label="position $p$", diverging=True
    )
    return figure


@themed
def plot_wavelengths(periods_by_width: Mapping[int, ArrayLike], *, length: int) -> Figure:
    """Draw the positions per full turn of each pair, for some widths, against what a sequence can show."""
    figure, axes = subplots(height=3.6)
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
    axes.axhline(length, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(0.99, length * 0.82, f"a sequence of {length}", va="top", ha="right")
    axes.set_yscale("log")
    axes.set_xlabel("pair, from the fastest (0) to the slowest (1)")
    axes.set_ylabel("positions per turn")
    axes.legend(loc="upper left")
    return figure


@themed
def plot_similarity(tables: Dataset, marked: Sequence[int]) -> Figure:
    """Draw the similarity by distance over that at distance 0; rising steps thick, some distances marked."""
    values = tables.similarity.isel(seed=0).values
    values = values / values[0]
    figure, axes = subplots(height=3.6)
    axes.plot(values, color=COLOURS["sinusoidal"], linewidth=1.4)
    for k in rises(values):
        axes.plot(
            [k, k + 1],
            values[k : k + 2],
            color=COLOURS["attention"],
            linewidth=3.2,
            solid_capstyle="butt",
        )
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
    axes.text(4, 0.97, "one step farther is less alike", color=COLOURS["sinusoidal"], va="center")
    axes.text(4, 0.91, "one step farther is more alike", color=COLOURS["attention"], va="center")
    axes.set_xlabel("distance $k$")
    axes.set_ylabel("similarity $s(k)/s(0)$")
    axes.set_ylim(min(0.3, values.min() - 0.1), 1.05)
    return figure


@themed
def plot_maps(matrices: Mapping[str, ArrayLike]) -> Figure:
    """Draw matrices over (position, position) in rows of two, names as titles."""
    rows = -(-len(matrices) // 2)
    figure, axes = subplots(rows, 2, height=2.9, squeeze=False)
    for each in axes.flat[len(matrices) :]:
        each.axis("off")
    for place, (each, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        each.grid(visible=False)
        each.imshow(np.asarray(matrix, dtype=float), cmap="cividis", interpolation="nearest")
        for spine in each.spines.values():
            spine.set_visible(False)
        each.set_title(f"({chr(ord('a') + place)}) {name}", loc="left", fontsize=11)
        each.set_xlabel("position $j$")
        if place % 2 == 0:
            each.set_ylabel("position $i$")
    return figure


@themed
def plot_distinct(tables: Dataset) -> Figure:
    """Draw how many different vectors each way of rounding leaves, by the number of positions."""
    figure, axes = subplots(height=3.4)
    counts = tables.up_to.values
    axes.plot(counts, counts, color=theme().ink, linewidth=1)
    styles = {
        "rounded at the end": ("sinusoidal", "rounded at the end", 2),
        "all in float16": ("ffn", "angles in float16", -10),
        "all in bfloat16": ("attention", "angles in bfloat16", -4),
    }
    for route, (concept, name, up) in styles.items():
        values = tables.distinct.sel(route=route).isel(seed=0).values
        style = look(concept)
        axes.plot(counts, values, **style, markersize=5)
        axes.annotate(
            name,
            (counts[-1], values[-1]),
            xytext=(9, up),
            textcoords="offset points",
            color=style["color"],
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(counts[0] * 0.85, counts[-1] * 11)  # names stand to the right of their lines
    for axis, ticks in ((axes.xaxis, counts), (axes.yaxis, (100, 300, 1000, 3000))):
        axis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("number of positions")
    axes.set_ylabel("different vectors")
    return figure


@themed
def plot_reading(reading: Dataset) -> Figure:
    """Draw how often the best guess is near, and how often not far off, by length and pairs used."""
    figure, axes = subplots(1, 2, height=3.4, sharey=True)
    lengths = reading.length.values
    for panel, variable in zip(axes, ("near", "tenth"), strict=True):
        for band, (concept, name) in _BANDS.items():
            values = reading[variable].sel(band=band).transpose("seed", "length").values
            seed_lines(panel, lengths, values, concept=concept, label=name)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator([float(n) for n in lengths]))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.set_xlabel("positions to choose from")
        panel.set_ylim(-0.03, 1.03)
    axes[0].set_ylabel("share of guesses")
    axes[0].set_title("(a) at most one position off", loc="left", fontsize=11)
    axes[1].set_title("(b) at most a tenth off", loc="left", fontsize=11)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=9)
    return figure
