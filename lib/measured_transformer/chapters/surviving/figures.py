"""Figures about the position on its way through the layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    subplots,
)
from measured_transformer.figures.style import theme, themed


@themed
def plot_through_depth(
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
def plot_trained_patterns(patterns: Mapping[str, ArrayLike]) -> Figure:
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
