"""Figures of the chapter on initialisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator
from numpy import ndarray

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed

Array = Float[ndarray, "..."]
ARM_CONCEPTS = {"plain": "none", "skip": "residual", "pre": "norm", "post": "attention"}
"""The colour of each way to build a block: without norm and connections, with connections, and both norms."""


@themed
def plot_through_matrices(panels: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw how large rows are after each of many random matrices, a panel an activation.

    Args:
        panels: name of the panel -> name of the factor -> (seed, layer) root mean squares.
    """
    figure, axes = subplots(len(panels), 1, height=2.7, sharex=True, squeeze=False)
    concepts = ("residual", "attention", "ffn")
    for each, (name, lines) in zip(axes[:, 0], panels.items(), strict=True):
        for (label, sizes), concept in zip(lines.items(), concepts, strict=False):
            layers = np.arange(np.atleast_2d(sizes).shape[1])
            seed_lines(each, layers, np.log10(sizes), concept=concept, label=label)
        each.axhline(0, color=theme().ink, linewidth=1)
        each.set_ylabel(f"{name}:\npowers of ten")
        legend_above(each, columns=3)
    axes[-1, 0].set_xlabel("matrices passed")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_passages(arms: Mapping[str, Mapping[float, Array]], *, label: str, x_label: str) -> Figure:
    """Draw how large something is along an untrained model, a panel a way to build it, a line a scale.

    The panels of a row share their axis: those without norms reach much further than those with.

    Args:
        arms: name of the panel -> factor on the weights -> (seed, state), in powers of ten.
        label: what is drawn.
        x_label: what the states are numbered by.
    """
    figure, axes = subplots(2, 2, height=2.7, sharex=True, sharey="row")
    for place, (each, (name, lines)) in enumerate(zip(axes.flat, arms.items(), strict=True)):
        styles = zip(lines.items(), _shades(len(lines)), "vos^D", strict=False)
        for (factor, values), colour, marker in styles:
            blocks = np.arange(values.shape[1]) / 2
            for row in values:
                each.plot(blocks, row, color=colour, alpha=0.3, linewidth=0.8)
            style = {"color": colour, "marker": marker, "markevery": 6, "label": f"{factor:g}"}
            each.plot(blocks, values.mean(0), **style)
        each.axhline(0, color=theme().ink, linewidth=1)
        each.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        each.set_title(name, loc="right", fontsize=11)
        if place % 2 == 0:
            each.set_ylabel(label)
    for each in axes[-1]:
        each.set_xlabel(x_label)
    panel_letters(axes.flat)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        title="weights multiplied by",
        loc="outside upper center",
        ncols=len(names),
        columnspacing=1.2,
    )
    return figure


@themed
def plot_losses_by_scale(
    scales: Sequence[float], arms: Mapping[str, tuple[str, Array]], start: float
) -> Figure:
    """Draw the loss after training against the factor on the first weights, a line an arm.

    A line ends where a mean loss is more than half above that of a uniform guess: nothing was learnt there,
    and one such loss of millions would hide all others.

    Args:
        scales: factors on the weights.
        arms: key of `ARM_CONCEPTS` -> (name, (seed, scale) losses).
        start: loss of a uniform guess.
    """
    figure, axes = subplots(height=3.8)
    for arm, (name, losses) in arms.items():
        learnt = np.where(np.mean(losses, axis=0) > 1.5 * start, np.nan, losses)
        seed_lines(axes, scales, learnt, concept=ARM_CONCEPTS[arm], label=name, marker_every=1)
    axes.axhline(start, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    _plain_ticks(axes, scales)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("all weights of the blocks multiplied by")
    axes.set_ylabel("loss after training (nats)")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_write_rules(rules: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the deviation that each rule gives the writing matrices of each layer.

    Args:
        rules: name -> deviation in layer 1, 2, ...
    """
    figure, axes = subplots(height=3.2)
    for (name, deviations), concept in zip(rules.items(), COLOURS, strict=False):
        layers = np.arange(1, len(deviations) + 1)
        axes.plot(layers, deviations, **look(concept), label=name)
    axes.set_ylim(bottom=0)
    axes.set_xticks(layers)
    axes.set_xlabel("layer")
    axes.set_ylabel("deviation of the\nwriting matrices")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_rule_losses(differences: Mapping[str, Array], margin: float) -> Figure:
    """Draw, for each task, how much lower or higher the loss is with one rule than with the other.

    Args:
        differences: name of the task -> one difference a seed.
        margin: the smallest difference of interest.
    """
    figure, axes = subplots(height=2.4)
    axes.axvspan(-margin, margin, color=theme().faint, alpha=0.6)
    concepts = dict(zip(differences, ("residual", "attention"), strict=True))
    seed_strip(
        axes, differences, label="difference of loss (nats)", concepts=concepts, reference=0.0
    )
    return figure


def _shades(count: int) -> list[tuple[float, float, float, float]]:
    """Colours from small to large: blue, through grey, to orange."""
    ends = (COLOURS["residual"], COLOURS["random"], COLOURS["attention"])
    shades = LinearSegmentedColormap.from_list("measured-scales", ends, N=max(count, 2))
    return [shades(place) for place in range(count)]


def _plain_ticks(axes: Axes, places: Sequence[float]) -> None:
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
