"""Figures about stacks with and without skip connections: results in, drawings out.

With skip connections is always the colour of the residual stream, without them the grey of "none".
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

_SKIPS = {"with": ("residual", "with skip connections"), "without": ("none", "without")}
_NORMS = {"none": "no norm", "pre": "pre-norm", "post": "post-norm"}


def attended(gradients: DataArray) -> DataArray:
    """Of logarithms by matrix: that of the length of the gradient of the query and key weights together."""
    squares = 10 ** (2 * gradients.sel(matrix=["query", "key"]))
    total = squares.sum("matrix")
    return total.copy(data=0.5 * np.log10(total.values))


@themed
def plot_gradient_sizes(untrained: Dataset, weights: Dataset) -> Figure:
    """Draw sizes of gradients with and without skip connections: on the stream, and of queries and keys.

    In powers of ten, so that the mean over seeds is one of exponents and no single seed makes it.

    Args:
        untrained, weights: the results of these names.
    """
    figure, axes = subplots(2, 3, height=2.5)
    for place, (norm, name) in enumerate(_NORMS.items()):
        above, below = axes[0, place], axes[1, place]
        for skip, (concept, _) in _SKIPS.items():
            values = untrained.gradient.sel(norm=norm, skip=skip).transpose("seed", "state").values
            blocks = untrained.state.values / 2
            seed_lines(above, blocks, np.log10(values), concept=concept, marker_every=4)
            asked = attended(weights.twelve.sel(norm=norm, skip=skip)).transpose("seed", "block")
            seed_lines(below, asked.block.values, asked.values, concept=concept, marker_every=2)
        above.axhline(0, color=theme().ink, linewidth=1)
        above.set_ylim(-5.2, 9.4)
        above.set_xticks((0, 6, 12))
        above.set_title(f"({'abc'[place]}) {name}", loc="left", fontsize=10.5)
        above.set_xlabel("blocks passed")
        below.set_ylim(-21.5, 10.5)
        below.set_xticks((1, 6, 12))
        below.set_title(f"({'def'[place]}) {name}", loc="left", fontsize=10.5)
        below.set_xlabel("block")
    axes[0, 0].set_ylabel("on the stream")
    axes[1, 0].set_ylabel("queries and keys")
    axes[0, 0].text(11.5, 4.6, "with", color=COLOURS["residual"], ha="right", fontsize=10)
    axes[0, 0].text(11.5, -3.4, "without", color=COLOURS["none"], ha="right", fontsize=10)
    for panel in axes[0, 1:]:
        panel.text(0.5, 1.2, "with", color=COLOURS["residual"], fontsize=10)
        panel.text(0.5, -2.6, "without", color=COLOURS["none"], fontsize=10)
    axes[1, 0].text(12, -1.2, "with", color=COLOURS["residual"], ha="right", fontsize=10)
    axes[1, 0].text(12, -17.6, "without", color=COLOURS["none"], ha="right", fontsize=10)
    for panel in axes[1, 1:]:
        panel.text(12, 1.2, "with", color=COLOURS["residual"], ha="right", fontsize=10)
        panel.text(12, -13.6, "without", color=COLOURS["none"], ha="right", fontsize=10)
    for panel in axes[:, 1:].flat:
        panel.set_yticklabels([])
    return figure


@themed
def plot_collapse(untrained: Dataset, six: Dataset, floor: float) -> Figure:
    """Draw (a) what tells tokens apart, block by block, and (b) the accuracy of six blocks after training.

    Args:
        untrained, six: the results of these names.
        floor: accuracy of a model that cannot tell positions apart.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.7, height_ratios=(1.25, 1))
    for skip, (concept, _) in _SKIPS.items():
        values = untrained.spread.sel(norm="pre", skip=skip).transpose("seed", "state").values
        blocks = untrained.state.values / 2
        seed_lines(top, blocks, np.log10(values), concept=concept, marker_every=2)
    for around, concept in (("attention", "attention"), ("network", "ffn")):
        values = untrained.one_skip.sel(around=around).transpose("seed", "state").values
        seed_lines(top, blocks, np.log10(values), concept=concept, marker_every=2)
    post = untrained.spread.sel(norm="post", skip="with").transpose("seed", "state").values
    seed_lines(top, untrained.state.values / 2, np.log10(post), concept="norm", marker_every=2)
    top.text(9.6, 0.3, "both skips, post-norm", color=COLOURS["norm"], ha="right", fontsize=10)
    top.text(12, 0.25, "both skips", color=COLOURS["residual"], ha="right", fontsize=10)
    top.text(12, -5.3, "around attention", color=COLOURS["attention"], ha="right", fontsize=10)
    top.text(4.7, -9.6, "around the network", color=COLOURS["ffn"], fontsize=10)
    top.text(3.3, -11.5, "none", color=COLOURS["none"], ha="right", fontsize=10)
    top.text(12, -14.6, "rounding is all that is left", ha="right", fontsize=10)
    top.set_ylim(-16.5, 1.6)
    top.set_xlabel("blocks passed")
    top.set_ylabel("token spread,\npowers of ten")
    names = {
        "both": ("both", "residual"),
        "attention": ("around attention", "attention"),
        "network": ("around the network", "ffn"),
        "none": ("none", "none"),
    }
    rows = {text: six.accuracy.sel(arm=arm).values for arm, (text, _) in names.items()}
    concepts = dict(names.values())
    seed_strip(bottom, rows, label="accuracy after training", concepts=concepts, reference=floor)
    bottom.set_xlim(0, 1.05)
    panel_letters((top, bottom))
    return figure


@themed
def plot_cube(cube: Dataset) -> Figure:
    """Draw how far apart tokens are behind one sublayer, by how far apart they were before it.

    Args:
        cube: the result ``cube``.
    """
    figure, axes = subplots(height=4.2)
    sizes = cube["size"].values
    shown = {
        "attention and skip": ("residual", "x + attention: kept", 3e2),
        "attention": ("attention", "attention: cubed", 2e1),
        "network": ("ffn", "network: multiplied", 0.6),
    }
    for kind, (concept, text, height) in shown.items():
        values = cube.after.sel(kind=kind).transpose("seed", "size").values
        seed_lines(axes, sizes, values, concept=concept, marker_every=1)
        axes.text(
            1.4 * float(sizes[-1]), height, text, color=COLOURS[concept], fontsize=10.5, va="center"
        )
    bound = np.exp(np.log(cube.bound).mean("seed")).values
    axes.plot(sizes, bound, color=theme().ink, linestyle=":", linewidth=1.6)
    axes.text(0.0009, 5e-6, "dotted: bound\nfor attention", fontsize=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(right=300 * float(sizes[-1]))  # room for the names
    axes.set_xticks([1e-3, 1e-2, 0.1, 1.0, 10.0])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("largest distance between two tokens, before")
    axes.set_ylabel("after one sublayer")
    return figure


@themed
def plot_paths(untrained: Dataset, highway: Dataset) -> Figure:
    """Draw (a) how the gradient's share spreads over path lengths and (b) the straight path's share by state.

    Args:
        untrained, highway: the results of these names.
    """
    figure, (left, right) = subplots(1, 2, height=3.3)
    shares = untrained.share.transpose("seed", "length").values
    seed_lines(left, untrained.length.values, shares, concept="residual", marker_every=1)
    left.set_xlim(-0.5, 14.5)
    left.axhline(0, color=theme().ink, linewidth=1)
    left.set_xlabel("branches on the path")
    left.set_ylabel("share of the gradient")
    for stage, concept in (("untrained", "residual"), ("trained", "attention")):
        values = highway.straight.sel(stage=stage).transpose("seed", "state").values
        blocks = highway.state.values / 2
        seed_lines(right, blocks, values, concept=concept, marker_every=2)
    right.text(5.4, 0.36, "untrained", color=COLOURS["residual"], fontsize=10)
    right.text(3.4, 0.9, "trained", color=COLOURS["attention"], ha="right", fontsize=10)
    right.axhline(0, color=theme().ink, linewidth=1)
    right.set_xlabel("blocks below the state")
    right.set_ylabel("share of the straight path")
    right.set_xticks((0, 2, 4, 6, 8, 10, 12))
    panel_letters((left, right))
    return figure


@themed
def plot_cuts(cut_two: Dataset, cut_twelve: Dataset) -> Figure:
    """Draw the accuracy after one cut, by sublayer, a panel a depth.

    Args:
        cut_two, cut_twelve: the results of these names.
    """
    figure, axes = subplots(2, 1, height=2.7)
    for panel, (result, name) in zip(
        axes, ((cut_two, "two blocks"), (cut_twelve, "twelve blocks")), strict=True
    ):
        for cut, concept, label in (
            ("branch", "ffn", "without the branch"),
            ("skip", "residual", "without the skip connection"),
        ):
            values = result.accuracy.sel(cut=cut).transpose("seed", "sublayer").values
            places = result.sublayer.values + 1
            seed_lines(panel, places, values, concept=concept, label=label, marker_every=1)
        panel.set_ylim(-0.03, 1.05)
        panel.set_ylabel("accuracy")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_xlabel(f"sublayer, {name} (odd: attention, even: network)")
    legend_above(axes[0], columns=2)
    panel_letters(axes)
    return figure
