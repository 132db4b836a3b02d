"""Figures about what attention costs: counts, tiles, the roofline, measured times, and what is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.roofline import Machine
from measured_transformer.variants.sparse import stride_mask, window_mask
from measured_transformer.viewer.style import COLOURS, look, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    subplots,
)
from measured_book.rooms.cost.measure import (
    WINDOW,
    Crossovers,
    Times,
    reachable,
)

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


@themed
def plot_tiles(n: int = 8, tile: int = 2, *, at: tuple[int, int] = (2, 1)) -> Figure:
    """Draw a causal pattern beside the same in tiles: done, at work, still to come, and never computed.

    Args:
        n: tokens.
        tile: queries and keys of a tile.
        at: row and column of the tile at work.
    """
    figure, axes = subplots(1, 2, height=3.5)
    for panel, name in zip(axes, ("(a) plain", "(b) in tiles"), strict=True):
        panel.set_title(name, loc="left", fontsize=11, pad=4)
        panel.set_aspect("equal")
        panel.set_xlim(-2.2, n + 0.1)
        panel.set_ylim(n + 0.1, -2.2)
        panel.axis("off")
        panel.text(n / 2, -1.75, "keys and values", ha="center", va="center", fontsize=10)
        panel.text(-1.75, n / 2, "queries", ha="center", va="center", fontsize=10, rotation=90)
    _grid(axes[0], n, 1, lambda row, column: 0.45 if column <= row else 0.12)
    step = n // tile
    row, column = at

    def strength(i: int, j: int) -> float | None:
        if j > i:
            return None
        if (i, j) == at:
            return 0.95
        return 0.22 if (i, j) < at else 0.0

    _grid(axes[1], step, tile, strength)
    for panel, rows, columns in (
        (axes[0], (0, n), (0, n)),
        (axes[1], (row * tile, tile), (column * tile, tile)),
    ):
        (top, height), (left, width) = rows, columns
        panel.add_patch(_bar(-1.1, float(top), 0.7, float(height)))
        panel.add_patch(_bar(float(left), -1.1, float(width), 0.7))
    middle = (column * tile + tile / 2, row * tile + tile / 2)
    axes[1].text(
        *middle, "now", ha="center", va="center", fontsize=10, color="white", weight="bold"
    )
    axes[1].text(tile / 2, tile / 2, "gone", ha="center", va="center", fontsize=10)
    axes[1].text(tile / 2, n - tile / 2, "to come", ha="center", va="center", fontsize=10)
    axes[1].text(
        n - 0.9 * tile, 0.7 * tile, "never computed", ha="center", va="center", fontsize=10
    )
    return figure


def _grid(axes: Axes, count: int, size: int, strength: Callable[[int, int], float | None]) -> None:
    """Squares in rows and columns, filled as strongly as a function of row and column says; None: no square."""
    for row in range(count):
        for column in range(count):
            filled = strength(row, column)
            if filled is not None:
                axes.add_patch(
                    Rectangle(
                        (column * size, row * size),
                        size,
                        size,
                        facecolor=tint("attention", filled),
                        edgecolor=theme().ink,
                        linewidth=0.7,
                    )
                )


def _bar(x: float, y: float, width: float, height: float) -> Rectangle:
    return Rectangle(
        (x, y), width, height, facecolor=tint("residual", 0.6), edgecolor=theme().ink, linewidth=0.8
    )


@themed
def plot_roofline(machine: Machine, points: Mapping[str, float]) -> Figure:
    """Draw the most operations in a second that a processor attains, and where some computations lie below it.

    Args:
        machine: what its data sheet says.
        points: operations for each byte, by name; a point stands on the roof above its place.
    """
    figure, axes = subplots(height=4.0)
    across = np.geomspace(0.4, 5000, 400)
    roof = np.array([machine.attainable(each) for each in across]) / 1e12
    axes.fill_between(across, roof, 0.2, color=tint("residual", 0.1), linewidth=0)
    axes.plot(across, roof, color=COLOURS["residual"], linewidth=2.4)
    axes.axvline(machine.ridge, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(
        machine.ridge * 0.93,
        0.3,
        f"ridge: {machine.ridge:.0f}",
        rotation=90,
        ha="right",
        fontsize=10,
    )
    _both(axes, machine, points)
    axes.text(0.55, 2.6, "as fast as bytes arrive", rotation=38, fontsize=10, va="bottom")
    axes.text(180, 0.5 * machine.operations / 1e12, "as fast as it computes", fontsize=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.4, 5000)
    axes.set_ylim(0.2, 1500)
    for axis, ticks in ((axes.xaxis, (1, 10, 100, 1000)), (axes.yaxis, (1, 10, 100))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("operations for each byte that is moved")
    axes.set_ylabel(r"at most, $10^{12}$ operations a second")
    return figure


_ROOFLINE = {
    "one token, network": ("ffn", "", (0, 0), "left"),
    "one token, attention": ("attention", "one token: attention, network", (14, -10), "left"),
    "plain, head of 64": ("attention", "plain, heads of 64", (-10, 4), "right"),
    "plain, head of 128": ("attention", "plain, heads of 128", (-10, 4), "right"),
    "tiled, 128 queries": ("norm", "tiles of 128 queries", (-10, 6), "right"),
    "network": ("ffn", "network, 4096 tokens", (-20, 18), "center"),
}
"""Concept, words, where they stand beside the point, and which end of them."""


def _both(axes: Axes, machine: Machine, points: Mapping[str, float]) -> None:
    for name, at in points.items():
        concept, words, shift, side = _ROOFLINE[name]
        height = machine.attainable(at) / 1e12
        style = look(concept)
        axes.plot(at, height, style["marker"], color=style["color"], markersize=9, zorder=4)
        if words:
            axes.annotate(
                words,
                (at, height),
                xytext=shift,
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=10,
            )


@themed
def plot_patterns(n: int = 24, window: int = WINDOW) -> Figure:
    """Draw which keys each query sees: all before it, a window, and the two kinds of heads of strides."""
    figure, axes = subplots(1, 3, height=2.5)
    every = np.tril(np.ones((n, n), dtype=bool))
    near, far = window_mask(n, window).numpy(), stride_mask(n, window).numpy()
    panels = (
        ("(a) all pairs", [(every, "attention")]),
        (f"(b) a window of {window}", [(near, "attention")]),
        ("(c) window and strides", [(near, "attention"), (far & ~near, "residual")]),
    )
    for panel, (name, masks) in zip(axes, panels, strict=True):
        for mask, concept in masks:
            for row, column in np.argwhere(mask):
                panel.add_patch(
                    Rectangle((column, row), 1, 1, facecolor=tint(concept, 0.8), linewidth=0)
                )
        panel.add_patch(Rectangle((0, 0), n, n, fill=False, edgecolor=theme().ink, linewidth=0.8))
        panel.set_xlim(-0.3, n + 0.3)
        panel.set_ylim(n + 0.3, -0.3)
        panel.set_aspect("equal")
        panel.axis("off")
        panel.set_title(name, loc="left", fontsize=10.5)
        seen = int(np.any([mask for mask, _ in masks], axis=0).sum())
        panel.text(n / 2, n + 2.2, f"{seen} pairs", ha="center", va="center", fontsize=10)
    return figure


@themed
def plot_reach(reach: Dataset) -> Figure:
    """Draw the mean accuracy of each arm at each delay, and a dot for each seed from 0 to 1 across its field.

    A field is framed where the pattern leads that far.
    """
    arms, delays = reach.arm.values.tolist(), reach.delay.values.tolist()
    means = reach.accuracy.mean("seed").sel(arm=arms).transpose("arm", "delay").values
    figure, axes = subplots(height=0.42 * len(arms) + 1.1)
    for row, arm in enumerate(arms):
        for column, delay in enumerate(delays):
            value = float(means[row, column])
            axes.add_patch(
                Rectangle(
                    (column - 0.46, row - 0.42),
                    0.92,
                    0.84,
                    facecolor=tint("attention", 0.85 * value),
                    edgecolor=theme().ink if reachable(arm, delay) else "none",
                    linewidth=1.8,
                )
            )
            seeds = reach.accuracy.sel(arm=arm, delay=delay).values
            axes.plot(
                column - 0.4 + 0.8 * seeds,
                np.full(len(seeds), row + 0.25),
                "o",
                color=theme().ink,
                markersize=3,
                alpha=0.6,
                mew=0,
            )
            dark_on_light = value < 0.85
            axes.text(
                column,
                row - 0.08,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=10.5,
                color=theme().ink if dark_on_light else "white",
            )
    axes.set_xlim(-0.5, len(delays) - 0.5)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_xticks(range(len(delays)), [f"{delay} back" for delay in delays])
    names = [
        f"{kind}, {depth} layer{'s' if depth != '1' else ''}"
        for kind, depth in (arm.split(", ") for arm in arms)
    ]
    axes.set_yticks(range(len(arms)), names)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


_LOOKUPS = {
    "all pairs, 1": ("residual", "all pairs, one layer"),
    "strided, 2": ("norm", "window and strides, two layers"),
    "window, 2": ("attention", "window, two layers"),
}


@themed
def plot_lookup(lookup: Dataset, *, window: int = 7) -> Figure:
    """Draw the accuracy at recall over how far back the pair stands, with the end of the window.

    Args:
        lookup: the accuracies.
        window: keys that a query of the window sees, itself included.
    """
    figure, axes = subplots(height=3.6)
    back = lookup.back.values
    for arm, (concept, name) in _LOOKUPS.items():
        values = lookup.accuracy.sel(arm=arm).transpose("seed", "back").values
        seed_lines(axes, back, values, concept=concept, label=name, marker_every=1)
    axes.axvline(window - 0.5, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(window - 0.4, 0.02, "end of the window", fontsize=9.5)
    axes.set_xticks(back)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("how far back the pair stands")
    axes.set_ylabel("accuracy")
    legend_above(axes, columns=2)
    return figure


_MEMORIES = {
    "softmax, 4": ("residual", "softmax, 4"),
    "linear, 4": ("ffn", "linear, 4"),
    "linear, 2": ("norm", "linear, 2"),
    "linear, 1": ("attention", "linear, 1"),
}


@themed
def plot_capacity(capacity: Dataset) -> Figure:
    """Draw the accuracy at recall over the number of pairs, by kind of attention and width of the head."""
    figure, axes = subplots(height=3.6)
    pairs = capacity.pairs.values
    for arm, (concept, name) in _MEMORIES.items():
        values = capacity.accuracy.sel(arm=arm).transpose("seed", "pairs").values
        seed_lines(axes, pairs, values, concept=concept, label=name, marker_every=1)
    axes.set_xticks(pairs)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("pairs in the sequence")
    axes.set_ylabel("accuracy")
    legend_above(axes, columns=4)
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
