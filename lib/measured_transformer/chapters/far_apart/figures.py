"""Figures about recall over a distance: measurements in, drawings out. Arrays have their seeds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from measured_transformer.figures.plots import legend_above, panel_letters, seed_lines, subplots
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]

_SERIES = ("attention", "residual", "ffn", "norm")


@themed
def plot_paths(tokens: Sequence[str]) -> Figure:
    """Draw how the first token reaches the last: by one step of attention, and through a chain of states.

    Args:
        tokens: what stands in the sequence.
    """
    figure, axes = subplots(2, 1, height=1.5)
    for each in axes:
        each.set_axis_off()
        each.set_xlim(-0.8, len(tokens) - 0.2)
        each.set_ylim(-0.7, 1.6)
        for place, token in enumerate(tokens):
            _node(each, float(place), 0.0, token, "norm")
    last = float(len(tokens) - 1)
    _arrow(axes[0], (1.0, 0.28), (last, 0.28), "attention", bend=-0.22)
    for place in range(len(tokens)):
        _node(axes[1], float(place), 1.2, f"$h_{{{place + 1}}}$", "residual")
        _arrow(axes[1], (float(place), 0.28), (float(place), 0.92), "residual")
        if place:
            _arrow(axes[1], (place - 0.68, 1.2), (place - 0.32, 1.2), "residual")
    panel_letters(axes)
    return figure


def _node(axes: Axes, x: float, y: float, text: str, concept: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": tint(concept), "edgecolor": COLOURS[concept]}
    axes.text(x, y, text, ha="center", va="center", bbox=box, fontsize=11)


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    concept: str,
    *,
    bend: float = 0.0,
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=12,
            linewidth=1.8,
            color=COLOURS[concept],
            connectionstyle=f"arc3,rad={bend}",
        )
    )


@themed
def plot_influence_by_distance(distances: Sequence[int], groups: Mapping[str, Array]) -> Figure:
    """Draw how strongly the last logits depend on a token over how far back it stands, both logarithmic.

    Args:
        distances: in tokens.
        groups: name of the model -> (seed, distance).
    """
    figure, axes = subplots(height=3.2)
    for (name, found), concept in zip(groups.items(), _SERIES, strict=False):
        seed_lines(axes, np.array(distances), found, concept=concept, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(distances, [f"{n}" for n in distances])
    axes.set_xlabel("tokens back")
    axes.set_ylabel("length of gradient")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_accuracies(
    steps: Sequence[int], distances: Mapping[str, Mapping[str, Array]], chance: float, level: float
) -> Figure:
    """Draw accuracies over the steps of training, a panel a distance, each seed faint.

    Args:
        steps: when it was looked at.
        distances: name of the panel -> name of the model -> (seed, look).
        chance: of guessing, dotted.
        level: what counts as learnt, dashed.
    """
    figure, axes = subplots(len(distances), 1, height=1.9, sharex=True, squeeze=False)
    for each, (name, models) in zip(axes[:, 0], distances.items(), strict=True):
        for (model, found), concept in zip(models.items(), _SERIES, strict=False):
            label = model if each is axes[0, 0] else ""
            seed_lines(each, np.array(steps), found, concept=concept, label=label)
        each.axhline(chance, color=theme().ink, linewidth=1, linestyle=":")
        each.axhline(level, color=theme().ink, linewidth=1, linestyle="--")
        each.set_ylim(0, 1.05)
        each.set_ylabel("accuracy")
        each.text(0.01, 0.74, name, transform=each.transAxes, ha="left", va="center")
    legend_above(axes[0, 0], columns=3)
    axes[-1, 0].set_xlabel("steps")
    panel_letters(axes[:, 0])
    return figure
