"""Figures on the inside of one layer: a token's numbers, who reads whom, what it costs, what dropout leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    seed_lines,
    subplots,
)
from measured_book.rooms.one_layer.measure import (
    KINDS,
    RATES_BEHIND,
    Cost,
    Strip,
    expected_share,
    operations,
    toy_layer,
)
from measured_book.rooms.one_layer.reading import moves

_BRIGHTEST = 2.0  # from this size on a cell is as strong as it gets
_LABEL, _GAP = 4.2, 0.4


@themed
def plot_token_strips(layers: Mapping[str, Sequence[Strip]]) -> Figure:
    """Draw one token's numbers after each operation as rows of cells, one panel a layer.

    The stronger the colour, the larger the number; a minus marks those below zero. Grey rows read other tokens.

    Args:
        layers: heading -> what `measure.strips` found.
    """
    longest = max(map(len, layers.values()))
    figure, panels = subplots(1, len(layers), height=0.36 * longest + 0.6, squeeze=False)
    widest = max(sum(map(len, strip.heads)) for found in layers.values() for strip in found)
    for axes, (heading, found) in zip(panels[0], layers.items(), strict=True):
        right = _LABEL + widest + 3.2
        axes.set_xlim(0, right)
        axes.set_ylim(longest - 0.4, -1.1)
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
def plot_who_mixes(mixing: Dataset, kinds: Sequence[str] = ("2017", "today")) -> Figure:
    """Draw which values of a token move when another token is changed: full circles move, empty ones stay.

    Raises:
        ValueError: there is no such kind of layer, or something moves in some layers and not in others.
    """
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"expected kinds among {', '.join(KINDS)}, got {sorted(unknown)}")
    found = {kind: moves(mixing, kind) for kind in kinds}
    longest = max(map(len, found.values()))
    figure, panels = subplots(1, len(found), height=0.3 * longest + 0.9, squeeze=False)
    for axes, (kind, rows) in zip(panels[0], found.items(), strict=True):
        parts = [one.part for one in operations(*toy_layer(kind)[::2])]
        axes.set_xlim(0, 8)
        axes.set_ylim(longest - 0.3, -2.2)
        axes.axis("off")
        axes.text(0, -1.8, kind, fontweight="bold", va="center")
        for x, words in ((4.3, "before the\nlayer"), (6.8, "before the\noperation")):
            axes.text(x, -0.65, words, ha="center", va="bottom", fontsize=10)
        for place, ((name, through, alone), part) in enumerate(zip(rows, parts, strict=True)):
            axes.text(0, place, name, va="center", fontsize=10)
            for x, moved in ((4.3, through), (6.8, alone)):
                colour = COLOURS[part]
                axes.plot(
                    x,
                    place,
                    "o",
                    markersize=11,
                    markerfacecolor=colour if moved else "none",
                    markeredgecolor=colour if moved else COLOURS["random"],
                    markeredgewidth=1.6,
                )
    return figure


@themed
def plot_costs(layers: Mapping[str, Sequence[Cost]]) -> Figure:
    """Draw each operation's share of a layer's parameters, one panel a layer; those that mix have none.

    Args:
        layers: heading -> the operations of a layer, in order.
    """
    longest = max(map(len, layers.values()))
    figure, panels = subplots(1, len(layers), height=0.3 * longest + 0.9, squeeze=False)
    for axes, (heading, found) in zip(panels[0], layers.items(), strict=True):
        whole = sum(cost.parameters for cost in found)
        shares = [cost.parameters / whole for cost in found]
        for place, (cost, share) in enumerate(zip(found, shares, strict=True)):
            colour = COLOURS[cost.part]
            axes.barh(place, share, height=0.66, color=tint(cost.part, 0.4), edgecolor=colour)
            words = "" if share == 0 else f" {share:.0%}" if share > 0.005 else " < 1%"
            axes.text(share, place, words, va="center", fontsize=10)
        axes.set_xlim(0, 1.3 * max(shares))
        axes.set_ylim(longest - 0.5, -0.5)
        axes.set_xticks([])
        axes.set_yticks(range(len(found)), [cost.name for cost in found])
        axes.set_title(heading, loc="left", fontsize=12)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("share of the parameters")
    return figure


@themed
def plot_kept_over_depth(dropout: Dataset) -> Figure:
    """Draw the share of an embedding's entries that dropout leaves on the skip connections, over sublayers."""
    figure, axes = subplots(height=3.6)
    at = dropout.sublayer.values
    before = dropout.before.transpose("seed", "sublayer").values
    seed_lines(axes, at, before, concept="residual", label="before the addition")
    for concept, rate in zip(("attention", "none"), RATES_BEHIND, strict=True):
        shares = dropout.behind.sel(rate=rate).transpose("seed", "sublayer").values
        seed_lines(axes, at, shares, concept=concept, label=f"after it, p = {rate:g}")
        exact = [expected_share(rate, int(k)) for k in at]
        axes.plot(at, exact, color=theme().ink, linewidth=1.0, linestyle=":", zorder=4)
    axes.set_xlabel("sublayers passed")
    axes.set_ylabel("share of entries left")
    axes.set_ylim(0, 1.05)
    legend_above(axes, columns=3)
    return figure
