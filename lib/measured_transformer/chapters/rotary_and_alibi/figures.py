"""Figures about positions that turn queries and keys, and about their precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import ArrayLike

from measured_transformer.figures.plots import (
    legend_above,
    seed_lines,
    subplots,
)
from measured_transformer.figures.schemes import PRECISION_COLOURS, PRECISION_STYLES, shown_name
from measured_transformer.figures.style import COLOURS, theme, themed


@themed
def plot_turned_vectors(
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
def plot_score_drift(shifts: ArrayLike, drifts: Mapping[str, ArrayLike]) -> Figure:
    """Change of rotary scores under a common shift of query and key, for some precisions."""
    figure, axes = subplots(height=3.4)
    for (name, values), (marker, line), colour in zip(
        drifts.items(), PRECISION_STYLES, PRECISION_COLOURS, strict=False
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
def plot_learning_curves(
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
        seed_lines(axes, steps, smooth, concept=concept, label=shown_name(concept))
    axes.axhline(best, color=theme().ink, linewidth=1.2)
    axes.axhline(level, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xlabel("training step")
    axes.set_ylabel("loss (nats)")
    legend_above(axes, columns=3)
    return figure
