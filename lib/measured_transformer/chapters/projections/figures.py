"""Figures on shared projections: symmetric boards, learning with one projection less, what sharing costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]


@themed
def plot_boards(tables: Mapping[str, Array], words: Sequence[str]) -> Figure:
    """Draw small square tables of numbers with their diagonals marked.

    Args:
        tables: name -> numbers, shape (query, key).
        words: the tokens, of queries and keys.
    """
    figure, panels = subplots(1, len(tables), height=2.7)
    for axes, (name, table) in zip(np.atleast_1d(panels), tables.items(), strict=True):
        largest = float(np.abs(table).max()) or 1.0
        for (row, column), value in np.ndenumerate(table):
            own = row == column
            axes.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5),
                    1,
                    1,
                    facecolor=tint("attention", 0.7 * abs(float(value)) / largest),
                    edgecolor=theme().ink if own else theme().faint,
                    linewidth=2.0 if own else 0.8,
                    zorder=2 if own else 1,
                )
            )
            whole = float(value).is_integer()
            text = f"{value:.0f}" if whole else f"{value:.2f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=12, zorder=3)
        axes.set_xlim(-0.55, len(words) - 0.45)
        axes.set_ylim(len(words) - 0.45, -0.55)
        axes.set_aspect("equal")
        axes.set_xticks(range(len(words)), words)
        axes.set_yticks(range(len(words)), words if axes is np.atleast_1d(panels)[0] else [])
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(name)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_learning(
    steps: Array, curves: Mapping[str, Mapping[str, Array]], *, predicted: float
) -> Figure:
    """Draw accuracy over training, every seed, a panel for each kind of model.

    Args:
        steps: where the models were scored.
        curves: panel -> {"separate": (seed, step), "shared": (seed, step)}.
        predicted: the accuracy that is marked.
    """
    figure, panels = subplots(len(curves), 1, height=2.6, sharex=True, sharey=True)
    for axes, (name, arms) in zip(np.atleast_1d(panels), curves.items(), strict=True):
        for arm, concept in (("separate", "none"), ("shared", "attention")):
            seed_lines(axes, steps, arms[arm], concept=concept, label=arm)
        axes.axhline(predicted, color=theme().ink, linestyle="--", linewidth=1)
        axes.text(0.98, 0.06, name, transform=axes.transAxes, ha="right", va="bottom")
        axes.set_ylabel("accuracy")
        axes.set_ylim(0, 1.05)
    np.atleast_1d(panels)[-1].set_xlabel("training step")
    legend_above(np.atleast_1d(panels)[0])
    for letter, axes in zip("abcd", np.atleast_1d(panels), strict=False):
        axes.set_title(f"({letter})", loc="left", fontweight="bold")
    return figure


@themed
def plot_gaps(found: Mapping[str, Mapping[str, Array]], *, margin: float) -> Figure:
    """Draw what sharing changes, task by task: accuracy of the tied model minus that of the free one.

    Every seed lies within the panels; intervals that are much wider are cut off.

    Args:
        found: task -> name of what is shared -> one difference a seed.
        margin: the smallest difference that counts; marked on the side of the loss.
    """
    figure, panels = subplots(len(found), 1, height=1.75, sharex=True)
    panels = np.atleast_1d(panels)
    for axes, (task, groups) in zip(panels, found.items(), strict=True):
        concepts = dict(zip(groups, ("attention", "residual", "norm"), strict=False))
        seed_strip(axes, groups, label="", concepts=concepts, reference=0.0)
        axes.axvline(-margin, color=COLOURS["random"], linestyle=":", linewidth=1.5)
        axes.set_title(task, loc="right", fontsize=12)
    seeds = [value for groups in found.values() for each in groups.values() for value in each]
    low, high = min(*seeds, -margin), max(*seeds, 0.0)
    room = (high - low) / 2  # the interval of two seeds would make all else small
    panels[-1].set_xlim(low - room, high + room)
    panels[-1].set_xlabel("accuracy, tied minus free")
    panel_letters(panels)
    return figure
