"""Figures about heads: who serves whom, what goes with them, which layer works, and a table of roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset

from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots

_ORDERS: Mapping[str, tuple[str, str]] = {
    "random": ("random", "at random"),
    "gradient": ("residual", "by gradient"),
    "alone": ("attention", "one at a time"),
    "greedy": ("ffn", "greedy"),
}
"""Order of `orders` -> concept of the palette, and its name in a figure."""
_LAYERS: Mapping[int, tuple[str, str]] = {
    0: ("residual", "first layer"),
    1: ("attention", "second layer"),
}
_KINDS: Mapping[str, str] = {
    "tuned": "encoder,\ntuned rate",
    "source": "encoder,\n0.0005",
    "encoder-decoder": "encoder-\ndecoder",
    "decoder-only": "decoder\nonly",
}
_ROWS: Mapping[str, str] = {
    "next and first": "1st: next and first token",
    "self": "1st: own token",
    "content": "1st: depends on input",
    "two mirrors": "2nd: two of four reverse",
    "several": "2nd: several positions",
    "global": "2nd: everything",
}


def _name(axes: Axes, text: str, at: tuple[float, float], concept: str, **how: str) -> None:
    """Write a line's name beside it, in its colour."""
    axes.text(*at, text, color=COLOURS[concept], fontsize=10, **how)  # type: ignore[arg-type]


@themed
def plot_twins(
    jobs: Sequence[Sequence[int]], places: int, losses: Mapping[str, ArrayLike]
) -> Figure:
    """Draw which places each head serves, and the loss as heads are removed in two orders.

    Args:
        jobs: for each head the places that it serves.
        places: number of places.
        losses: name of the order -> the loss with 0, 1, 2, ... heads removed.
    """
    figure, (above, below) = subplots(2, 1, height=2.5)
    names = [f"head {head}" for head in range(len(jobs))]
    for row, served in enumerate(jobs):
        for place in range(1, places + 1):
            fill = tint("attention", 0.55) if place in served else "none"
            above.add_patch(
                Rectangle(
                    (place - 0.45, row - 0.4), 0.9, 0.8, facecolor=fill, edgecolor=theme().ink
                )
            )
    above.set_xlim(0.4, places + 0.6)
    above.set_ylim(len(jobs) - 0.5, -0.5)
    above.set_yticks(range(len(jobs)), names)
    above.set_xticks(range(1, places + 1))
    above.grid(visible=False)
    above.tick_params(length=0)
    above.set_xlabel("position whose answer the head fetches")
    where = ((2.75, 1.62, "right"), (3.2, 0.05, "left"))
    for (name, values), concept, (x, y, side) in zip(
        losses.items(), ("residual", "norm"), where, strict=False
    ):
        seed_lines(below, np.arange(len(jobs) + 1), values, concept=concept, label="")
        _name(below, name, (x, y), concept, ha=side, va="bottom")
    below.set_xticks(range(len(jobs) + 1))
    below.set_xlabel("heads removed")
    below.set_ylabel("loss (nats)")
    panel_letters((above, below))
    return figure


def of_working_layer(spares: Dataset, rate: str = "tuned") -> tuple[DataArray, DataArray]:
    """Rises of the loss in the layer that loses most: without each of its heads, and without all four."""
    here = spares.sel(rate=rate, how="zero")
    layer = here.together.argmax("layer")
    return here.alone.isel(layer=layer), here.together.isel(layer=layer)


@themed
def plot_spares(spares: Dataset) -> Figure:
    """Draw what the loss rises by without heads of the layer that reverses, a dot for each seed.

    Args:
        spares: the result ``spares``.
    """
    alone, together = of_working_layer(spares)
    groups = {
        "one head (mean of four)": alone.mean("head").values,
        "the four rises added up": alone.sum("head").values,
        "all four at once": together.values,
    }
    figure, axes = subplots(height=2.3)
    concepts = dict(zip(groups, ("residual", "none", "attention"), strict=True))
    seed_strip(axes, groups, label="rise of the loss (nats)", concepts=concepts, reference=0.0)
    return figure


@themed
def plot_curves(orders: Dataset) -> Figure:
    """Draw the loss over the number of heads removed, a panel a task, a line an order, each seed faint.

    Args:
        orders: the result ``orders``.
    """
    tasks = [str(task) for task in orders.task.values]
    figure, panels = subplots(len(tasks), 1, height=2.2, sharex=True)
    for axes, task in zip(panels, tasks, strict=True):
        for way, (concept, text) in _ORDERS.items():
            values = orders.curve.sel(task=task, order=way).transpose("seed", "removed")
            seed_lines(axes, values.removed.values, values.values, concept=concept, label=text)
        axes.set_ylabel("loss (nats)")
        axes.set_title(task, loc="right", fontsize=12)
    panels[-1].set_xlabel("heads removed, of sixteen")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    panel_letters(panels)
    return figure


@themed
def plot_which_layer(by_rate: Dataset, *, seed: int = 0) -> Figure:
    """Draw the weight on the mirrored position in both layers by learning rate, above patterns of two models.

    Args:
        by_rate: the result ``by_rate``.
        seed: which of the kept seeds the patterns are of, counted from 0.
    """
    figure, _ = subplots(height=6.3)
    figure.clear()
    grid = figure.add_gridspec(3, 8, height_ratios=(3.4, 1, 1))
    axes = figure.add_subplot(grid[0, :])
    rates = by_rate.rate.values
    for layer, (concept, _text) in _LAYERS.items():
        values = by_rate.mirror.sel(layer=layer).mean("head").transpose("seed", "rate").values
        seed_lines(axes, rates, values, concept=concept, marker_every=1, label="")
    _name(axes, "second layer", (rates[1], 1.0), "attention", va="bottom", ha="center")
    _name(axes, "first layer", (rates[-1], 1.0), "residual", va="bottom", ha="right")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([float(rate) for rate in rates]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticklabels(["" if rate == 5.7e-3 else f"{rate:g}" for rate in rates])
    axes.set_ylim(0, 1.12)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("weight on the mirrored position")
    axes.set_title("(a)", loc="left", fontweight="bold")
    for row, rate in enumerate(by_rate.shown.values):
        for layer in range(2):
            for head in range(4):
                small = figure.add_subplot(grid[row + 1, 4 * layer + head])
                cells = by_rate.maps.isel(seed=seed).sel(shown=rate, layer=layer, head=head)
                _small_map(small, cells.transpose("query", "key").values)
                if layer == head == 0:
                    small.set_title(f"({'bc'[row]})", loc="left", fontweight="bold")
                    small.set_ylabel(f"{rate:g}", fontsize=11)
                elif head == 1:
                    small.set_title(_LAYERS[layer][1], fontsize=11, loc="left")
    return figure


def _small_map(axes: Axes, cells: np.ndarray) -> None:
    axes.imshow(cells, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


@themed
def plot_between_two_numbers(roles: Dataset, *, content_below: float = 0.5) -> Figure:
    """Draw each head of each seed by what the place explains of it and how much it looks at the mirror image.

    Args:
        roles: the result ``roles``.
        content_below: heads with a smaller share are of the class content, an area that is tinted.
    """
    figure, axes = subplots(height=4.0)
    axes.axvspan(-0.03, content_below, color=tint("ffn", 0.14), zorder=0, lw=0)
    axes.text(0.0, 0.97, 'class "content"', color=theme().ink, va="top", fontsize=11)
    groups = (
        ("fresh", (0, 1), "x", "none", "untrained", (0.03, 0.13)),
        ("tuned", (0,), "o", "residual", "trained, first layer", (0.93, 0.5)),
        ("tuned", (1,), "D", "attention", "trained, second layer", (0.17, 0.0)),
    )
    for state, layers, marker, concept, text, at in groups:
        here = roles.sel(state=state, layer=list(layers))
        axes.plot(
            np.ravel(here.share),
            np.ravel(here.mirror),
            marker,
            color=COLOURS[concept],
            alpha=0.6,
            markersize=6,
            mew=1.5 if marker == "x" else 0,
        )
        _name(axes, text, at, concept, ha="right" if at[0] > 0.9 else "left")
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.05)
    axes.set_xlabel("share of the pattern that the position explains")
    axes.set_ylabel("weight on the mirrored position")
    return figure


@themed
def plot_found_rows(roles: Dataset) -> Figure:
    """Draw in how many seeds each kind of model has each row of the table; the last column before training.

    Args:
        roles: the result ``roles``.
    """
    seeds = roles.sizes["seed"]
    found = roles.found.sel(factor=1.0).sum("seed").transpose("row", "kind").values
    fresh = roles.found_fresh.sel(kind="tuned").sum("seed").values[:, None]
    cells = np.concatenate([found, fresh], axis=1)
    names = [*(_KINDS[str(kind)] for kind in roles.kind.values), "encoder,\nuntrained"]
    figure, axes = subplots(height=4.0)
    for (row, column), count in np.ndenumerate(cells):
        concept = "none" if column == len(names) - 1 else "attention"
        fill = tint(concept, 0.06 + 0.6 * count / seeds)
        axes.add_patch(
            Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, facecolor=fill, edgecolor="none")
        )
        axes.text(column, row, f"{count} of {seeds}", ha="center", va="center", fontsize=11)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.set_xticks(range(len(names)), names)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(cells)), [_ROWS[str(row)] for row in roles.row.values])
    axes.grid(visible=False)
    axes.tick_params(length=0, labelsize=10)
    axes.set_xlabel("seeds whose model has such heads")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure
