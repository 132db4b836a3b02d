"""Figures about the residual stream: measurements in, drawings out.

Arrays have their seeds first. With skip connections is always the colour of the residual stream, without
them the grey of "none".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed

Array = Float[np.ndarray, "..."]


@themed
def plot_by_hand(
    embedding: Sequence[float], writes: Sequence[Sequence[float]], normed: Sequence[Sequence[float]]
) -> Figure:
    """Draw a stream of two numbers: head to tail, and pulled back to the circle after each addition.

    Args:
        embedding: two numbers.
        writes: those of attention and of the feed-forward network.
        normed: the states after each addition and norm.
    """
    figure, (left, right) = subplots(1, 2, height=3.5)
    concepts = ("attention", "ffn")
    for axes in (left, right):
        axes.set_aspect("equal")
        axes.set_xlim(-0.5, 4.2)
        axes.set_ylim(-0.5, 4.9)
        axes.set_xlabel("first number")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylabel("second number")
    here = np.array(embedding, dtype=float)
    _arrow(left, np.zeros(2), here, "residual", "embedding")
    for write, concept in zip(writes, concepts, strict=True):
        _arrow(left, here, here + np.array(write), concept, concept)
        here = here + np.array(write)
    left.plot(*here, "o", color=theme().ink, zorder=5)
    angle = np.linspace(0, 2 * np.pi, 200)
    right.plot(
        np.sqrt(2) * np.cos(angle), np.sqrt(2) * np.sin(angle), color=COLOURS["norm"], linewidth=1.5
    )
    right.text(1.48, 0.28, "norm", color=theme().ink, fontsize=11)
    here = np.array(embedding, dtype=float)
    _arrow(right, np.zeros(2), here, "residual", "")
    for write, state, concept in zip(writes, normed, concepts, strict=True):
        there = here + np.array(write)
        _arrow(right, here, there, concept, "")
        _arrow(right, there, np.array(state, dtype=float), "norm", "")
        here = np.array(state, dtype=float)
    right.plot(*here, "o", color=theme().ink, zorder=5)
    panel_letters((left, right))
    return figure


def _arrow(axes: Axes, start: Array, end: Array, concept: str, name: str) -> None:
    axes.annotate(
        "",
        xy=(float(end[0]), float(end[1])),
        xytext=(float(start[0]), float(start[1])),
        arrowprops={
            "arrowstyle": "-|>",
            "color": COLOURS[concept],
            "linewidth": 2.4,
            "mutation_scale": 16,
            "shrinkA": 0,
            "shrinkB": 0,
        },
        zorder=4,
    )
    if name:
        middle = (np.array(start, dtype=float) + end) / 2
        label = {"ffn": "feed-forward"}.get(concept, name)
        axes.text(middle[0] + 0.3, middle[1] + 0.05, label, fontsize=11, ha="left", va="top")


@themed
def plot_what_is_left(pre: Array, post: Array) -> Figure:
    """Draw how long the embedding's own part of the stream is, relative to the stream, state by state."""
    figure, axes = subplots(height=3.4)
    blocks = np.arange(pre.shape[1]) / 2
    seed_lines(axes, blocks, pre, concept="residual", label="pre-norm")
    seed_lines(axes, blocks, post, concept="norm", label="post-norm")
    axes.set_yscale("log")
    axes.set_xlabel("blocks passed")
    axes.set_ylabel("embedding's part / stream")
    legend_above(axes)
    return figure


@themed
def plot_norm_put_back(groups: Mapping[str, Array]) -> Figure:
    """Draw the cosine between a formula's gradient and the true one, a row a formula."""
    figure, axes = subplots(height=2.3)
    concepts = dict(zip(groups, ("residual", "residual", "norm"), strict=True))
    seed_strip(axes, groups, label="cosine with the true gradient", concepts=concepts)
    axes.set_xlim(right=1.03)
    return figure


@themed
def plot_paths(lengths: Array, depths: Sequence[int], skip: Array, trained: Array) -> Figure:
    """Draw (a) how the gradient's share spreads over path lengths and (b) the pure skip path's share.

    Args:
        lengths: (seed, length) shares at the largest depth.
        depths: numbers of blocks.
        skip: (seed, depth) share of the pure skip path, untrained.
        trained: shares of the pure skip path in trained two-block models, one a seed.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.9)
    seed_lines(top, np.arange(lengths.shape[1]), lengths, concept="residual", label="")
    top.axhline(0, color=theme().ink, linewidth=1)
    top.set_xlabel("branches that the path goes through")
    top.set_ylabel("share of the gradient")
    seed_lines(bottom, np.array(depths), skip, concept="residual", label="untrained")
    bottom.plot(
        np.full(trained.size, 2.0),
        trained,
        "x",
        color=COLOURS["attention"],
        markersize=7,
        label="two blocks, trained",
        zorder=4,
    )
    bottom.axhline(0, color=theme().ink, linewidth=1)
    bottom.set_xlabel("blocks")
    bottom.set_ylabel("share of skip path")
    bottom.set_xticks(list(depths))
    legend_above(bottom)
    panel_letters((top, bottom))
    return figure


@themed
def plot_gradient_sizes(arms: Mapping[str, tuple[Array, Array]]) -> Figure:
    """Draw the gradient's size on its way down, with and without skip connections, a panel a norm.

    In powers of ten, so that the mean over seeds is one of exponents and no single seed makes it.

    Args:
        arms: name of the norm -> (with, without), each (seed, state) and relative to the last state.
    """
    figure, axes = subplots(len(arms), 1, height=2.35, sharex=True)
    for each, (name, (with_skip, without)) in zip(axes, arms.items(), strict=True):
        blocks = np.arange(with_skip.shape[1]) / 2
        for values, concept, label in (
            (with_skip, "residual", "with skip connections"),
            (without, "none", "without"),
        ):
            seed_lines(each, blocks, np.log10(values), concept=concept, label=label)
        each.axhline(0, color=theme().ink, linewidth=1)
        each.set_ylabel(f"{name}:\npowers of ten")
    legend_above(axes[0], columns=2)
    axes[-1].set_xlabel("blocks below; the gradient travels from right to left")
    panel_letters(axes)
    return figure


@themed
def plot_collapse(
    spread: tuple[Array, Array], accuracy: Mapping[str, Array], floor: float
) -> Figure:
    """Draw (a) what tells tokens apart, block by block, and (b) the accuracy after training.

    Args:
        spread: with and without skip connections, each (seed, state).
        accuracy: name of the arm -> one value a seed.
        floor: accuracy of a model that cannot tell positions apart.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.6, height_ratios=(1.25, 1))
    blocks = np.arange(spread[0].shape[1]) / 2
    for values, concept, label in (
        (spread[0], "residual", "with skip connections"),
        (spread[1], "none", "without"),
    ):
        seed_lines(top, blocks, np.log10(values), concept=concept, label=label)
    top.set_xlabel("blocks passed")
    top.set_ylabel("token spread,\npowers of ten")
    legend_above(top, columns=2)
    concepts = dict(zip(accuracy, ("residual", "none"), strict=True))
    seed_strip(
        bottom, accuracy, label="accuracy after training", concepts=concepts, reference=floor
    )
    bottom.set_xlim(0, 1.05)
    panel_letters((top, bottom))
    return figure


@themed
def plot_growth(families: Mapping[str, tuple[Array, str]]) -> Figure:
    """Draw the length of the stream by block.

    Args:
        families: name -> ((seed, block state) lengths, concept that gives its colour).
    """
    figure, axes = subplots(height=3.8)
    for name, (norms, concept) in families.items():
        seed_lines(axes, np.arange(norms.shape[1]), norms, concept=concept, label=name)
    _plain_log(axes)
    axes.set_xlabel("blocks passed")
    axes.set_ylabel("length of the stream")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_writers(ratios: Mapping[str, Array]) -> Figure:
    """Draw how long the writes are relative to the stream they meet, every seed, two rows a block.

    Args:
        ratios: name of the block -> (seed, 2), attention first.
    """
    rows: dict[str, Array] = {}
    concepts: dict[str, str] = {}
    for name, found in ratios.items():
        for place, (part, concept) in enumerate(
            (("attention", "attention"), ("feed-forward", "ffn"))
        ):
            rows[f"{name}\n{part}"] = found[:, place]
            concepts[f"{name}\n{part}"] = concept
    figure, axes = subplots(height=3.4)
    seed_strip(axes, rows, label="length of the write / length of the stream", concepts=concepts)
    axes.set_xlim(left=0)
    return figure


@themed
def plot_steps(ratios: Mapping[str, Array], kept: Mapping[str, Array]) -> Figure:
    """Draw (a) how much each block changes the stream and (b) how much of its direction it keeps.

    Args:
        ratios: name -> (seed, block) length of the change over length before.
        kept: name -> (seed, block) cosine between before and after.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.8)
    concepts = dict(zip(ratios, ("attention", "residual", "none"), strict=True))
    for axes, values, label, line in (
        (top, ratios, "change / stream", 0.3),
        (bottom, kept, "cosine before, after", 0.9),
    ):
        for name, table in values.items():
            seed_lines(axes, np.arange(table.shape[1]), table, concept=concepts[name], label=name)
        axes.axhline(line, color=theme().ink, linestyle="--", linewidth=1)
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _plain_log(top)
    bottom.set_xlabel("block")
    legend_above(top, columns=3)
    panel_letters((top, bottom))
    return figure


@themed
def plot_cuts(branch: Mapping[str, Array], skip: Mapping[str, Array]) -> Figure:
    """Draw the accuracy after one cut, by sublayer, a panel a model.

    Args:
        branch, skip: name of the model -> (seed, sublayer) accuracy without that branch or skip connection.
    """
    figure, axes = subplots(len(branch), 1, height=2.7)
    for each, name in zip(axes, branch, strict=True):
        sublayers = np.arange(branch[name].shape[1])
        seed_lines(each, sublayers, branch[name], concept="ffn", label="without the branch")
        seed_lines(each, sublayers, skip[name], concept="residual", label="without the skip")
        each.set_ylim(-0.03, 1.05)
        each.set_ylabel("accuracy")
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
        each.set_xlabel(f"sublayer, {name} (even: attention, odd: feed-forward)")
    legend_above(axes[0], columns=2)
    panel_letters(axes)
    return figure


def _plain_log(axes: Axes) -> None:
    """Make the y axis logarithmic with numbers such as 0.5, 1, 2 for ranges of few powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
