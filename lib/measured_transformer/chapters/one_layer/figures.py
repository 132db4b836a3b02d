"""Figures on the inside of one layer: a token's numbers, who reads whom, what it costs, what dropout leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from measured_transformer.chapters.one_layer.measure import Cost, Strip, expected_share
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed, tint

_BRIGHTEST = 2.0  # from this size on a cell is as strong as it gets
_LABEL, _GAP = 3.5, 0.4


@themed
def plot_token_strips(layers: Mapping[str, Sequence[Strip]]) -> Figure:
    """Draw one token's numbers after each operation as rows of cells, one panel a layer.

    The stronger the colour, the larger the number; a minus marks those below zero. Grey rows read other tokens.

    Args:
        layers: heading -> what `analysis.one_layer.strips` found, the same number of values each.

    Raises:
        ValueError: the layers have different numbers of values.
    """
    counts = {len(found) for found in layers.values()}
    if len(counts) != 1:
        raise ValueError(f"expected layers with as many values each, got {sorted(counts)}")
    figure, panels = subplots(1, len(layers), height=0.36 * counts.pop() + 0.6, squeeze=False)
    for axes, (heading, found) in zip(panels[0], layers.items(), strict=True):
        widest = max(sum(map(len, strip.heads)) for strip in found)
        right = _LABEL + widest + 3.2
        axes.set_xlim(0, right)
        axes.set_ylim(len(found) - 0.4, -1.1)
        axes.axis("off")
        axes.text(0, -0.85, heading, fontweight="bold", va="center")
        for place, strip in enumerate(found):
            _one_strip(axes, place, strip, right)
    return figure


def _one_strip(axes: Axes, place: int, strip: Strip, right: float) -> None:
    if strip.mixes:
        axes.add_patch(
            Rectangle((-0.1, place - 0.48), right, 0.96, color=theme().faint, linewidth=0)
        )
    axes.text(0, place, strip.name, va="center", fontsize=10)
    left = _LABEL
    for head in strip.heads:
        for number in head:
            strength = min(abs(number), _BRIGHTEST) / _BRIGHTEST
            axes.add_patch(
                Rectangle(
                    (left, place - 0.38),
                    1,
                    0.76,
                    facecolor=tint(strip.part, 0.8 * strength),
                    edgecolor=COLOURS[strip.part],
                    linewidth=1.2,
                )
            )
            if number < 0:
                axes.text(
                    left + 0.5,
                    place,
                    "\N{MINUS SIGN}",
                    ha="center",
                    va="center_baseline",
                    fontsize=11,
                )
            left += 1
        left += _GAP
    shape = ", ".join(map(str, strip.shape))
    axes.text(left, place, f"({shape})", va="center", fontsize=10)


@themed
def plot_who_mixes(layers: Mapping[str, Sequence[tuple[str, str, bool, bool]]]) -> Figure:
    """Draw which values of a token move when another token is changed: full circles move, empty ones stay.

    Args:
        layers: heading -> for each operation in order its name, its part (a key of `COLOURS`), whether its
            value moves when the other token is changed where it enters the layer, and whether it moves when the
            other token is changed in what the operation itself reads.
    """
    longest = max(map(len, layers.values()))
    figure, panels = subplots(1, len(layers), height=0.3 * longest + 0.9, squeeze=False)
    for axes, (heading, found) in zip(panels[0], layers.items(), strict=True):
        axes.set_xlim(0, 8)
        axes.set_ylim(longest - 0.3, -2.2)
        axes.axis("off")
        axes.text(0, -1.8, heading, fontweight="bold", va="center")
        for x, words in ((4.0, "before the\nlayer"), (6.5, "before the\noperation")):
            axes.text(x, -0.65, words, ha="center", va="bottom", fontsize=10)
        for place, (name, part, through, alone) in enumerate(found):
            axes.text(0, place, name, va="center", fontsize=10)
            for x, moves in ((4.0, through), (6.5, alone)):
                colour = COLOURS[part]
                axes.plot(
                    x,
                    place,
                    "o",
                    markersize=11,
                    markerfacecolor=colour if moves else "none",
                    markeredgecolor=colour if moves else COLOURS["random"],
                    markeredgewidth=1.6,
                )
    return figure


@themed
def plot_costs_by_operation(found: Sequence[Cost]) -> Figure:
    """Draw each operation's share of a layer's parameters and of its matrix products.

    Args:
        found: the operations of a layer, in order.
    """
    figure, panels = subplots(1, 2, height=0.3 * len(found) + 1.0, sharey=True)
    quantities = (("parameters", "parameters"), ("flops", "matrix products"))
    for axes, (quantity, label) in zip(panels, quantities, strict=True):
        whole = sum(getattr(cost, quantity) for cost in found)
        shares = [getattr(cost, quantity) / whole for cost in found]
        for place, (cost, share) in enumerate(zip(found, shares, strict=True)):
            axes.barh(
                place,
                share,
                height=0.66,
                color=tint(cost.part, 0.8 if cost.mixes else 0.4),
                edgecolor=COLOURS[cost.part],
            )
            words = "" if share == 0 else f" {share:.2%}" if share < 0.01 else f" {share:.0%}"
            axes.text(share, place, words, va="center", fontsize=10)
        axes.set_xlim(0, 1.25 * max(shares))
        axes.set_xticks([])
        axes.set_xlabel(f"share of the {label}")
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(found)), [cost.name for cost in found])
    panels[0].set_ylim(len(found) - 0.5, -0.5)
    panel_letters(panels)
    return figure


@themed
def plot_kept_over_depth(
    before: Float[np.ndarray, "seed state"],
    behind: Mapping[float, Float[np.ndarray, "seed state"]],
) -> Figure:
    """Draw the share of an embedding's entries that dropout leaves on the skip connections, over sublayers.

    Args:
        before: shares with dropout before the addition.
        behind: rate of dropout, one or two -> shares with dropout behind the addition.

    Raises:
        ValueError: no rate, or more than two.
    """
    concepts = ("attention", "none")
    if not 1 <= len(behind) <= len(concepts):
        raise ValueError(f"expected one or two rates, got {len(behind)}")
    figure, axes = subplots(height=3.6)
    at = np.arange(before.shape[1])
    seed_lines(axes, at, before, concept="residual", label="before addition")
    for concept, (rate, shares) in zip(concepts, behind.items(), strict=False):
        seed_lines(axes, at, shares, concept=concept, label=f"behind, p = {rate:g}")
    for rate in behind:
        exact = [expected_share(rate, int(k)) for k in at]
        axes.plot(at, exact, color=theme().ink, linewidth=1.0, linestyle=":", zorder=4)
    axes.set_xlabel("sublayers passed")
    axes.set_ylabel("share of entries left")
    axes.set_ylim(0, 1.05)
    legend_above(axes, columns=3)
    return figure
