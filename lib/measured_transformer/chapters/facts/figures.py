"""Figures on facts in feed-forward networks: who fires for what, how many are stored, silenced, overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from measured_transformer.figures.plots import (
    heat_map,
    panel_letters,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import look, theme, themed

Array = Float[np.ndarray, "..."]


@themed
def plot_who_fires(written: Array, learned: Array) -> Figure:
    """Draw the activations of neurons (rows) for facts (columns): written by hand, and learned.

    Args:
        written: of the network by hand, shape (fact, neuron).
        learned: of a trained one, each neuron in units of its largest, shape (fact, neuron).
    """
    figure, panels = subplots(1, 2, height=3.6, width_ratios=(2, 3))
    for axes, found in zip(panels, (written, learned), strict=True):
        heat_map(
            axes, found.T, label="activation", x_label="fact", y_label="neuron",
            limits=(0.0, float(found.max())),
        )  # fmt: skip
    panel_letters(panels)
    return figure


@themed
def plot_recall_left(
    numbers: Sequence[int], found: Mapping[str, Array], concepts: Mapping[str, str], *, judged: int
) -> Figure:
    """Draw recall over the number of neurons silenced, every seed faint.

    Args:
        numbers: of neurons silenced for each fact.
        found: name -> recall, shape (seed, number).
        concepts: the same names -> key of `COLOURS`.
        judged: the number at which the claims are judged, marked.
    """
    figure, axes = subplots(height=3.7)
    axes.axvline(numbers.index(judged), color=theme().faint, linewidth=6, zorder=0)
    places = range(len(numbers))  # evenly, since zero has no logarithm
    for name, values in found.items():
        style = look(concepts[name])
        for row in values:
            axes.plot(places, row, color=style["color"], alpha=0.35, linewidth=0.9)
        axes.plot(places, values.mean(0), **style, label=name, zorder=3)
    axes.set_xticks(places, [str(number) for number in numbers])
    axes.set_ylim(-0.02, 1.04)
    axes.set_xlabel("neurons silenced")
    axes.set_ylabel("recall")
    axes.legend(loc="lower left")
    return figure


@themed
def plot_answers_lost(
    edits: Mapping[str, Mapping[str, Array]], concepts: Mapping[str, str]
) -> Figure:
    """Draw which share of other facts' answers an edit changes, a panel for each kind of edit.

    Args:
        edits: kind of edit -> group of facts -> share of changed answers of each seed.
        concepts: kind of edit -> key of `COLOURS`.
    """
    figure, panels = subplots(len(edits), 1, height=1.75, sharex=True)
    for axes, (kind, found) in zip(np.atleast_1d(panels), edits.items(), strict=True):
        names = dict.fromkeys(found, concepts[kind])
        seed_strip(axes, found, label=f"share of answers changed, {kind}", concepts=names)
    np.atleast_1d(panels)[0].set_xlim(left=0)
    for axes in np.atleast_1d(panels):
        axes.tick_params(labelbottom=True)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_shares_recalled(found: Mapping[str, Array], concepts: Mapping[str, str]) -> Figure:
    """Draw the share of a table that each model recalls.

    Args:
        found: name of the model -> one share a seed.
        concepts: the same names -> key of `COLOURS`.
    """
    figure, axes = subplots(height=0.55 * len(found) + 0.9)
    seed_strip(axes, found, label="share recalled", concepts=concepts)
    axes.set_xlim(0, 1.02)
    return figure
