"""Figures of the chapters on positions: from measured values to drawings."""

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
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed

_SHOWN = {"alibi": "ALiBi"}
_PRECISION_STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"))
_PRECISION_COLOURS = (COLOURS["none"], COLOURS["learned"], COLOURS["rotary"], COLOURS["residual"])


def _shown(name: str) -> str:
    """How a scheme is written where readers see it."""
    return _SHOWN.get(name, name)


def _relabelled(
    groups: Mapping[str, ArrayLike], concepts: Mapping[str, str] | None
) -> tuple[dict[str, ArrayLike], dict[str, str]]:
    """The groups under the names that readers see, and the concept of each."""
    shown = {_shown(name): values for name, values in groups.items()}
    return shown, {_shown(name): (concepts or {}).get(name, name) for name in groups}


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
def position_maps(matrices: Mapping[str, ArrayLike]) -> Figure:
    """Matrices over (position, position), one panel below the other in rows of two; names as titles."""
    count = len(matrices)
    rows = -(-count // 2)
    figure, axes = subplots(rows, 2, height=2.9, squeeze=False)
    for each in axes.flat[count:]:
        each.axis("off")
    for place, (each, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        cells = np.asarray(matrix, dtype=float)
        each.grid(visible=False)
        each.imshow(cells, cmap="cividis", interpolation="nearest")
        for spine in each.spines.values():
            spine.set_visible(False)
        each.set_title(f"({chr(ord('a') + place)}) {_shown(name)}", loc="left", fontsize=11)
        each.set_xlabel("position $j$")
        if place % 2 == 0:
            each.set_ylabel("position $i$")
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
def turned_vectors(
    places: Sequence[tuple[int, int]], *, rate: float, query_angle: float, key_angle: float
) -> Figure:
    """One dial for each pair of places: a query and a key, turned by their positions, and the angle between."""
    figure, axes = subplots(1, len(places), height=2.5)
    for each, (m, n) in zip(np.ravel(axes), places, strict=True):
        each.set_aspect("equal")
        each.axis("off")
        each.set_xlim(-1.3, 1.3)
        each.set_ylim(-1.6, 1.3)
        each.add_patch(Circle((0, 0), 1.0, fill=False, color=theme().faint, linewidth=1.5))
        ends = []
        for start, place, colour, name in (
            (query_angle, m, COLOURS["rotary"], "q"),
            (key_angle, n, COLOURS["residual"], "k"),
        ):
            angle = start + rate * place
            ends.append(angle)
            tip = np.array([np.cos(angle), np.sin(angle)])
            each.annotate(
                "",
                tip,
                (0, 0),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": colour,
                    "lw": 2.4,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
            )
            each.text(*(1.17 * tip), name, ha="center", va="center", style="italic")
        arc = np.linspace(ends[1], ends[0], 40)
        each.plot(0.42 * np.cos(arc), 0.42 * np.sin(arc), color=theme().ink, linewidth=1.5)
        each.text(0, -1.45, f"$m={m},\\ n={n}$", ha="center", va="center")
    return figure


@themed
def score_drift(shifts: ArrayLike, drifts: Mapping[str, ArrayLike]) -> Figure:
    """Change of rotary scores under a common shift of query and key, for some precisions."""
    figure, axes = subplots(height=3.4)
    for (name, values), (marker, line), colour in zip(
        drifts.items(), _PRECISION_STYLES, _PRECISION_COLOURS, strict=False
    ):
        seen = np.maximum(np.asarray(values, dtype=float), 1e-17)
        axes.plot(shifts, seen, marker=marker, linestyle=line, color=colour, label=name)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yscale("log")
    axes.set_xlabel("common shift of query and key")
    axes.set_ylabel("largest change of a score")
    axes.set_yticks([1e-12, 1e-8, 1e-4, 1])
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=2)
    return figure


@themed
def distinct_vectors(lengths: ArrayLike, distinct: Mapping[str, ArrayLike]) -> Figure:
    """How many different position vectors rounding leaves, by the number of positions."""
    figure, axes = subplots(height=3.4)
    for (name, values), (marker, line), colour in zip(
        distinct.items(), _PRECISION_STYLES[2:], _PRECISION_COLOURS[2:], strict=False
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


@themed
def strip(
    groups: Mapping[str, ArrayLike],
    *,
    label: str,
    concepts: Mapping[str, str] | None = None,
    reference: float | None = None,
) -> Figure:
    """One row a group, a dot for every seed, with mean and interval; a dashed line at the reference."""
    figure, axes = subplots(height=0.8 + 0.42 * len(groups))
    shown, hues = _relabelled(groups, concepts)
    seed_strip(axes, shown, label=label, concepts=hues, reference=reference)
    return figure


@themed
def strips(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    label: str,
    concepts: Mapping[str, str] | None = None,
    reference: float | None = None,
) -> Figure:
    """Strips below one another on one common axis; the panels' names as titles."""
    rows = sum(len(groups) for groups in panels.values())
    figure, axes = subplots(
        len(panels),
        1,
        height=(0.5 * len(panels) + 0.36 * rows + 0.4) / len(panels),
        sharex=True,
        squeeze=False,
    )
    for place, (each, (name, groups)) in enumerate(zip(axes.flat, panels.items(), strict=True)):
        shown, hues = _relabelled(groups, concepts)
        seed_strip(each, shown, label=label, concepts=hues, reference=reference)
        each.set_title(f"({chr(ord('a') + place)}) {name}", loc="left", fontsize=11)
        if place < len(panels) - 1:
            each.set_xlabel("")
    return figure


@themed
def learning_curves(
    curves: Mapping[str, ArrayLike], *, best: float, level: float, window: int
) -> Figure:
    """Training loss of every seed, smoothed over `window` steps, for each scheme: (seed, step)."""
    figure, axes = subplots(height=3.8)
    kernel = np.ones(window) / window
    for concept, values in curves.items():
        smooth = np.array(
            [np.convolve(row, kernel, mode="valid") for row in np.atleast_2d(np.asarray(values))]
        )
        steps = np.arange(smooth.shape[1]) + window
        seed_lines(axes, steps, smooth, concept=concept, label=_shown(concept))
    axes.axhline(best, color=theme().ink, linewidth=1.2)
    axes.axhline(level, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xlabel("training step")
    axes.set_ylabel("loss (nats)")
    legend_above(axes, columns=3)
    return figure


@themed
def through_depth(
    untrained: Mapping[str, ArrayLike],
    trained: ArrayLike,
    losses: ArrayLike,
    *,
    shuffled: ArrayLike,
    chance: float,
    concepts: Mapping[str, str] | None = None,
) -> Figure:
    """(a), (b) R2 of a position probe by layer; (c) loss when positions are taken out there: (seed, layer)."""
    figure, axes = subplots(3, 1, height=2.6, sharex=True)
    blocks = np.arange(np.atleast_2d(np.asarray(trained)).shape[1])
    for name, values in untrained.items():
        concept = (concepts or {}).get(name, name)
        seed_lines(axes[0], blocks, values, concept=concept, label=name, marker_every=1)
    legend_above(axes[0], columns=2)
    seed_lines(axes[1], blocks, trained, concept="sinusoidal", marker_every=1)
    control = np.atleast_2d(np.asarray(shuffled, dtype=float)).mean(axis=0)
    axes[1].plot(blocks, control, color=theme().ink, linewidth=1.2, linestyle=":")
    for each in axes[:2]:
        each.set_ylabel("$R^2$ of the position")
        each.set_ylim(-0.15, 1.05)
    seed_lines(axes[2], blocks, losses, concept="sinusoidal", marker_every=1)
    axes[2].axhline(chance, color=theme().ink, linewidth=1.2, linestyle=":")
    axes[2].set_ylabel("loss (nats)")
    axes[2].set_xlabel("after block (0: embedding)")
    panel_letters(axes)
    return figure


@themed
def trained_patterns(patterns: Mapping[str, ArrayLike]) -> Figure:
    """Mean attention patterns, (query, key) each, in rows of two with their names."""
    names = list(patterns)
    rows = -(-len(names) // 2)
    figure, axes = subplots(rows, 2, height=2.8, squeeze=False)
    for each in axes.flat[len(names) :]:
        each.axis("off")
    for place, (each, name) in enumerate(zip(axes.flat, names, strict=False)):
        cells = np.asarray(patterns[name], dtype=float)
        each.grid(visible=False)
        each.imshow(cells, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        for spine in each.spines.values():
            spine.set_visible(False)
        each.set_title(f"({chr(ord('a') + place)}) {name}", loc="left", fontsize=11)
        each.set_xlabel("key")
        if place % 2 == 0:
            each.set_ylabel("query")
    return figure
