"""Figures of sequences longer than those of training: excess loss by position."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from measured_transformer.figures.plots import legend_above, panel_letters, seed_lines, subplots
from measured_transformer.figures.style import theme, themed

_SHOWN = {
    "alibi": "ALiBi",
    "random_sinusoidal": "sinusoidal, random positions",
    "random_learned": "learned, random positions",
    "rotary, positions": "rotary, positions / 8",
    "rotary, base": "rotary, larger base",
}


@themed
def plot_extrapolation(
    excess: Mapping[str, ArrayLike], *, trained: int, chance: float, smooth: int = 8
) -> Figure:
    """Excess loss at each position, every seed faint: (seed, position); the trained length is marked."""
    figure, axes = subplots(height=4.2)
    _draw(axes, excess, trained, chance, smooth, {})
    axes.set_xlabel("position")
    return figure


@themed
def plot_beyond_panels(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    trained: int,
    chance: float,
    concepts: Mapping[str, str] | None = None,
    smooth: int = 8,
) -> Figure:
    """Panels like `plot_extrapolation` below one another, on common axes.

    Args:
        panels: name of the panel -> name of the arm -> excess loss, (seed, position).
        trained: the trained length.
        chance: excess of guessing.
        concepts: name of the arm -> key of the palette; needed where the two differ.
        smooth: number of positions that are averaged.
    """
    figure, axes = subplots(len(panels), 1, height=3.5, sharex=True, sharey=True, squeeze=False)
    for each, arms in zip(axes.flat, panels.values(), strict=True):
        _draw(each, arms, trained, chance, smooth, concepts or {})
    axes.flat[-1].set_xlabel("position")
    panel_letters(axes.flat)
    return figure


def _draw(
    axes: Axes,
    excess: Mapping[str, ArrayLike],
    trained: int,
    chance: float,
    smooth: int,
    concepts: Mapping[str, str],
) -> None:
    kernel = np.ones(smooth) / smooth
    for name, values in excess.items():
        rows = np.atleast_2d(np.asarray(values, dtype=float))
        unscored = np.flatnonzero(~np.isfinite(rows).all(axis=0))
        start = int(unscored[-1]) + 1 if len(unscored) else 0
        lines = np.array([np.convolve(row[start:], kernel, mode="valid") for row in rows])
        across = start + smooth / 2 + np.arange(lines.shape[1])
        concept = concepts.get(name, name)
        shown = _SHOWN.get(name, name)
        seed_lines(axes, across, lines, concept=concept, label=shown, marker_every=24)
    axes.axvspan(0, trained, color=theme().faint, alpha=0.6, lw=0)
    axes.axhline(0, color=theme().ink, linewidth=1.2)
    axes.axhline(chance, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_ylabel("excess loss (nats)")
    axes.set_xlim(0, None)
    legend_above(axes, columns=3 if len(excess) > 4 else 2)
