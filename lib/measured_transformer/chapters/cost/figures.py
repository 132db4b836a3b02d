"""Figures about what attention costs: counts, shares and measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from measured_transformer.analysis.cost import Operations
from measured_transformer.chapters.cost.measure import Crossovers, Times
from measured_transformer.figures.plots import legend_above, panel_letters, subplots
from measured_transformer.figures.style import COLOURS, look, theme, themed, tint

_PIECES = ("projections", "pairs", "network")
_FILLS = {"projections": ("attention", 0.25), "pairs": ("attention", 0.8), "network": ("ffn", 0.4)}
_NAMES = {
    "projections": "attention: projections",
    "pairs": "attention: pairs of tokens",
    "network": "feed-forward network",
}


def _shares(of: Operations) -> dict[str, float]:
    whole = of.attention + of.network
    return {piece: getattr(of, piece) / whole for piece in _PIECES}


@themed
def plot_shares_over_length(crossings: Crossovers, *, width: int = 256) -> Figure:
    """Draw how a block's operations are divided over n / d, with the lengths of equality.

    Args:
        crossings: where a line stands, with a letter each.
        width: of the stream for which the shares are computed; they depend on n / d alone.
    """
    figure, axes = subplots(height=4.0)
    lengths = np.unique(np.geomspace(width / 16, 32 * width, 300).round().astype(int))
    parts = [_shares(Operations(int(n), width)) for n in lengths]
    rows = [[part[piece] for part in parts] for piece in _PIECES]
    axes.stackplot(
        lengths / width,
        rows,
        colors=[tint(*_FILLS[piece]) for piece in _PIECES],
        edgecolor=theme().ink,
        linewidth=0.8,
        labels=[_NAMES[piece] for piece in _PIECES],
    )
    _ratio_axis(axes, lengths[0] / width, lengths[-1] / width)
    axes.axvline(1, color=theme().ink, linestyle="--", linewidth=1.4)
    marked = {"n = d": 1.0, "A": crossings.whole, "B": crossings.quadratic, "C": crossings.linear}
    for name, place in marked.items():
        if name != "n = d":
            axes.axvline(place, color=theme().ink, linewidth=1.4)
        axes.text(place, 1.01, name, ha="center", va="bottom", fontsize=11, fontweight="bold")
    axes.set_ylim(0, 1)
    axes.grid(visible=False)
    axes.set_ylabel("share of the operations")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        loc="lower left",
        bbox_to_anchor=(0, 1.07),
        ncols=1,
        borderaxespad=0,
    )
    return figure


@themed
def plot_times_over_length(found: Mapping[str, Times], concepts: Mapping[str, str]) -> Figure:
    """Draw attention's time in units of the network's over n / d; circles where they are equal.

    Args:
        found: name in the legend -> times.
        concepts: the same names -> key of `COLOURS`.
    """
    figure, axes = subplots(height=4.2)
    places: list[float] = []
    for name, times in found.items():
        across = np.array(times.lengths) / times.width
        places += across.tolist()
        style = look(concepts[name])
        axes.fill_between(
            across, times.low, times.high, color=style["color"], alpha=0.2, linewidth=0
        )
        axes.plot(across, times.ratios, **style, label=name)
        axes.plot(
            times.crossover, 1, "o", mfc="none", mec=theme().ink, markersize=12, mew=1.6, zorder=4
        )
    lengths = np.geomspace(min(places), max(places), 60)
    counted = [(8 + 4 * r) / 16 for r in lengths]
    axes.plot(lengths, counted, color=theme().ink, linewidth=1.2, label="by count")
    axes.axhline(1, color=theme().ink, linestyle=":", linewidth=1)
    _ratio_axis(axes, min(places) / 1.08, 1.08 * max(places))
    axes.set_yscale("log", base=2)
    axes.set_yticks([0.5, 1, 2, 4, 8], ["½", "1", "2", "4", "8"])
    axes.set_ylabel("attention / network")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_shares_of_models(models: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw a bar a model, cut into the shares of its blocks' operations.

    Args:
        models: name -> the operations of 'projections', 'pairs' and 'network', in any unit.
    """
    figure, axes = subplots(height=0.62 * len(models) + 1.5)
    for place, pieces in enumerate(models.values()):
        whole, start = sum(pieces.values()), 0.0
        for piece in _PIECES:
            share = pieces[piece] / whole
            axes.barh(
                place,
                share,
                left=start,
                height=0.62,
                color=tint(*_FILLS[piece]),
                edgecolor=theme().ink,
                linewidth=0.8,
                label=_NAMES[piece] if place == 0 else "_nolegend_",
            )
            if share > 0.07:
                axes.text(
                    start + share / 2, place, f"{share:.2f}", ha="center", va="center", fontsize=10
                )
            start += share
    axes.set_yticks(range(len(models)), list(models))
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of the blocks' operations")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=1, borderaxespad=0.2)
    return figure


@themed
def plot_multiplications(n: int, d: int) -> Figure:
    """Draw both sublayers as their matrix products, each with its sizes and its operations.

    Args:
        n: tokens.
        d: width of the stream.
    """
    figure, (above, below) = subplots(2, 1, height=2.2, sharex=True, height_ratios=(6, 2))
    attention = [
        ("queries", n, d, d),
        ("keys", n, d, d),
        ("values", n, d, d),
        ("scores", n, d, n),
        ("mixing", n, n, d),
        ("output", n, d, d),
    ]
    network = [("widen", n, d, 4 * d), ("narrow", n, 4 * d, d)]
    _products(above, attention, "attention", pairs=("scores", "mixing"))
    _products(below, network, "ffn")
    above.set_xlim(0, 1.6 * max(2 * rows * inner * columns for _, rows, inner, columns in network))
    panel_letters((above, below))
    return figure


def _products(
    axes: Axes,
    products: Sequence[tuple[str, int, int, int]],
    concept: str,
    pairs: Sequence[str] = (),
) -> None:
    """A bar a product of (rows, inner) with (inner, columns): two operations for each term of each entry."""
    for place, (name, rows, inner, columns) in enumerate(products):
        operations = 2 * rows * inner * columns
        strength = 0.8 if name in pairs else 0.35
        axes.barh(
            place,
            operations,
            height=0.66,
            color=tint(concept, strength),
            edgecolor=COLOURS[concept],
        )
        words = f" ({rows}, {inner}) by ({inner}, {columns}): {operations}"
        axes.text(operations, place, words, va="center", fontsize=10)
    axes.set_yticks(range(len(products)), [name for name, *_ in products])
    axes.set_ylim(len(products) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _ratio_axis(axes: Axes, low: float, high: float) -> None:
    """The ratio n / d on a logarithmic axis with powers of two written as fractions."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    words = {-4: "1/16", -3: "⅛", -2: "¼", -1: "½"}
    powers = range(int(np.ceil(np.log2(low))), int(np.floor(np.log2(high))) + 1)
    axes.set_xticks([2.0**k for k in powers], [words.get(k, f"{2**k:g}") for k in powers])
    axes.minorticks_off()
    axes.set_xlabel("length of the sequence in units of the width, n / d")
