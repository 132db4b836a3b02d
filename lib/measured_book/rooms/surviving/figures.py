"""Figures about the position on its way through the layers: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed
from numpy.typing import ArrayLike
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_lines, subplots

_STACKS = {
    "pre-norm": ("sinusoidal", "sinusoidal, pre-norm"),
    "pre-norm, table": ("learned", "random table, pre-norm"),
    "post-norm": ("norm", "sinusoidal,\npost-norm"),
    "pre-norm, none": ("none", "none"),
}
_MODELS = {
    "pre-norm": ("sinusoidal", "pre-norm"),
    "post-norm, small writes": ("norm", "post-norm, small writes"),
}
_PLACEMENTS = {"pre": ("sinusoidal", "pre-norm"), "post": ("norm", "post-norm")}


def _name(axes: Axes, text: str, at: tuple[float, float], concept: str, **how: str) -> None:
    """Write a line's name beside it, in its colour."""
    axes.text(*at, text, color=COLOURS[concept], fontsize=10, **how)  # type: ignore[arg-type]


@themed
def plot_stacks(untrained: Dataset) -> Figure:
    """Draw the R2 of the position by layer in untrained stacks, a faint line for each seed.

    Args:
        untrained: the result ``untrained_stacks``.
    """
    figure, axes = subplots(height=3.6)
    layers = untrained.layer.values
    where = {
        "pre-norm": (7.6, 0.8),
        "pre-norm, table": (8.0, 0.57),
        "post-norm": (3.6, 0.2),
        "pre-norm, none": (9.8, -0.12),
    }
    for name, (concept, text) in _STACKS.items():
        values = untrained.r2.sel(stack=name).transpose("seed", "layer").values
        seed_lines(axes, layers, values, concept=concept, marker_every=1)
        _name(axes, text, where[name], concept)
    axes.set_ylim(-0.2, 1.05)
    axes.set_xlabel("blocks passed")
    axes.set_ylabel("$R^2$ of the position")
    return figure


@themed
def plot_sizes(sizes: Dataset) -> Figure:
    """Draw the R2 of the position at the top by the factor of the writes, pre-norm beside post-norm.

    Args:
        sizes: the result ``sizes``.
    """
    figure, axes = subplots(height=3.4)
    factors = sizes.factor.values
    for name, (concept, text) in _PLACEMENTS.items():
        values = sizes.top.sel(placement=name).transpose("seed", "factor").values
        seed_lines(axes, factors, values, concept=concept, marker_every=1)
        at = (1.06, 0.76) if name == "pre" else (0.52, 0.36)
        _name(axes, text, at, concept, ha="left" if name == "pre" else "right")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(factors)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticklabels(["1/8", "1/4", "1/2", "1", "2"])
    axes.set_ylim(-0.15, 1.05)
    axes.set_xlabel("size of the writes, in units of the usual initialisation")
    axes.set_ylabel("$R^2$ after twelve blocks")
    return figure


@themed
def plot_trained(deep: Dataset, chance: float) -> Figure:
    """Draw the R2 of the position by layer in trained stacks, and the loss when it is taken out there.

    Args:
        deep: the result ``deep``.
        chance: the loss of a model that does not know the order.
    """
    figure, axes = subplots(2, 1, height=2.8, sharex=True)
    layers = deep.layer.values
    for name, (concept, text) in _MODELS.items():
        for panel, what in zip(axes, (deep.r2, deep.without), strict=True):
            values = what.sel(model=name).transpose("seed", "layer").values
            seed_lines(panel, layers, values, concept=concept, label=text, marker_every=1)
    control = deep.shuffled.mean(("seed", "model")).values
    axes[0].plot(layers, control, color=theme().ink, linewidth=1.2, linestyle=":")
    axes[0].text(layers[-1], 0.04, "labels shuffled", ha="right", va="bottom", fontsize=10)
    axes[0].set_ylabel("$R^2$ of the position")
    axes[0].set_ylim(-0.15, 1.05)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    axes[1].axhline(chance, color=theme().ink, linewidth=1.2, linestyle=":")
    axes[1].text(layers[-1], chance - 0.06, "order unknown", ha="right", va="top", fontsize=10)
    axes[1].set_ylabel("loss (nats)")
    axes[1].set_ylim(bottom=0)
    axes[1].set_xlabel("blocks passed")
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
