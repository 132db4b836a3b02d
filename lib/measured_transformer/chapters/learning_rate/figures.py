"""Figures of the chapter on the learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
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
FACTOR_CONCEPTS = {"rate": "attention", "depth": "residual", "heads": "norm", "width": "ffn"}
"""The colour of each hyper-parameter."""
OPTIMISER_CONCEPTS = ("attention", "residual", "ffn")


@themed
def plot_descents(paths: Mapping[str, Array], reach: float = 1.25) -> Figure:
    """Draw steps of gradient descent on a parabola, a panel a rate.

    Args:
        paths: name of the panel -> the places of the weight, the start first; the loss is half their square.
        reach: how far to each side of the bottom is drawn.
    """
    figure, axes = subplots(2, 2, height=2.5, sharex=True, sharey=True)
    across = np.linspace(-reach, reach, 200)
    for each, (name, path) in zip(axes.flat, paths.items(), strict=True):
        each.plot(across, across**2 / 2, color=theme().faint, linewidth=3)
        style = look("attention")
        each.plot(path, np.square(path) / 2, **{**style, "linestyle": "-"}, linewidth=1.2)
        each.plot(path[0], path[0] ** 2 / 2, marker="o", color=theme().ink, markersize=9)
        each.set_xlim(-reach, reach)
        each.set_ylim(-0.03, reach**2 / 2)
        each.set_title(name, loc="right", fontsize=11)
    for each in axes[-1]:
        each.set_xlabel("weight")
    for each in axes[:, 0]:
        each.set_ylabel("loss")
    panel_letters(axes.flat)
    return figure


@themed
def plot_two_directions(paths: Mapping[str, Array]) -> Figure:
    """Draw the loss over the steps in a valley that is steep one way and flat the other.

    Args:
        paths: name of the rate -> the loss at each step.
    """
    figure, axes = subplots(height=3.4)
    for (name, losses), concept in zip(paths.items(), COLOURS, strict=False):
        axes.plot(np.arange(losses.size), losses, **look(concept), markevery=5, label=name)
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_loss_by_rate(
    rates: Sequence[float], losses: Array, *, levels: Mapping[str, float]
) -> Figure:
    """Draw the loss after training against the learning rate, every seed.

    Args:
        rates: learning rates.
        losses: shape (seed, rate).
        levels: name -> a loss to compare with, a dashed line.
    """
    figure, axes = subplots(height=3.8)
    seed_lines(axes, rates, losses, concept="attention", label="", marker_every=1)
    axes.set_xscale("log")
    top = 1.12 * max(levels.values())
    axes.set_ylim(0.85 * float(losses.min()), top)
    for name, level in levels.items():
        axes.axhline(level, color=theme().ink, linestyle="--", linewidth=1)
        middle = float(np.exp(np.mean(np.log(rates))))
        axes.annotate(name, (middle, level), xytext=(0, 3), textcoords="offset points", ha="center")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss on held-out text (nats a byte)")
    return figure


@themed
def plot_factor_means(names: Mapping[str, Sequence[object]], means: Array) -> Figure:
    """Draw the mean loss at each level of each factor, a panel a factor, every search.

    Args:
        names: factor -> how its levels are called.
        means: shape (search, factor, level).
    """
    figure, axes = subplots(2, 2, height=2.6, sharey=True)
    for place, (each, (factor, levels)) in enumerate(zip(axes.flat, names.items(), strict=True)):
        across = np.arange(len(levels))
        concept = FACTOR_CONCEPTS[factor]
        seed_lines(each, across, means[:, place], concept=concept, label="", marker_every=1)
        each.set_xticks(across, [str(level) for level in levels])
        each.set_xlabel("learning rate" if factor == "rate" else factor)
    for each in axes[:, 0]:
        each.set_ylabel("mean loss (nats)")
    panel_letters(axes.flat)
    return figure


@themed
def plot_factor_shares(searches: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw the share of each factor in the variance of the loss, a dot a search, a panel a space.

    Args:
        searches: name of the space -> factor (or what is left) -> one share a search.
    """
    figure, axes = subplots(len(searches), 1, height=2.5, sharex=True, squeeze=False)
    for each, (name, shares) in zip(axes[:, 0], searches.items(), strict=True):
        concepts = {factor: FACTOR_CONCEPTS.get(factor, "none") for factor in shares}
        seed_strip(each, shares, label="", concepts=concepts, reference=0.0)
        each.set_title(name, loc="right")
    axes[-1, 0].set_xlabel("share of the variance of the loss")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_after_a_jump(sizes: Mapping[str, Mapping[str, Array]], before: int) -> Figure:
    """Draw the size of Adam's steps around a change of the gradient, a panel a change.

    Args:
        sizes: what changes -> name of the setting -> step in units of the rate, one a step.
        before: number of steps before the change.
    """
    figure, axes = subplots(len(sizes), 1, height=2.6, sharex=True)
    for each, (name, arms) in zip(axes, sizes.items(), strict=True):
        for (label, steps), concept in zip(arms.items(), OPTIMISER_CONCEPTS, strict=False):
            across = np.arange(steps.size) - before
            style = {**look(concept), "marker": ""}
            each.plot(across, steps, **style, label=label)
        each.axhline(1, color=theme().ink, linewidth=1)
        each.set_ylabel(f"step / rate\n({name})")
    axes[-1].set_xlabel("steps since the gradient changed")
    legend_above(axes[0], columns=2)
    panel_letters(axes)
    return figure


@themed
def plot_optimisers(
    tables: Mapping[str, Mapping[float, float]], differences: Mapping[str, Array], margin: float
) -> Figure:
    """Draw (a) the loss of each optimiser against the rate and (b) what separates them at the best rates.

    Args:
        tables: name of the optimiser -> rate -> mean loss of its tuning runs.
        differences: name -> loss minus that of another optimiser, one a seed.
        margin: what counts as equal.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.7)
    for (name, table), concept in zip(tables.items(), OPTIMISER_CONCEPTS, strict=True):
        top.plot(list(table), list(table.values()), **look(concept), label=name)
    top.set_xscale("log")
    _few_ticks(top, sorted({rate for table in tables.values() for rate in table}))
    top.set_xlabel("peak learning rate")
    top.set_ylabel("loss (nats)")
    legend_above(top, columns=len(tables))
    bottom.axvspan(-margin, margin, color=theme().faint, alpha=0.6)
    concepts = dict(zip(differences, OPTIMISER_CONCEPTS[1:], strict=True))
    seed_strip(bottom, differences, label="difference (nats)", concepts=concepts, reference=0.0)
    bottom.xaxis.set_major_locator(MaxNLocator(6))
    panel_letters((top, bottom))
    return figure


def _few_ticks(axes: Axes, places: Sequence[float]) -> None:
    """Ticks of a logarithmic axis at these places, written as plain numbers."""
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
