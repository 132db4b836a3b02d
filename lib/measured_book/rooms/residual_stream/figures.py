"""Figures about the residual stream: results in, drawings out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots

Array = Float[np.ndarray, "..."]

_CONCEPTS = {
    "tokens": "residual",
    "positions": "sinusoidal",
    "attention 1": "attention",
    "network 1": "ffn",
    "attention 2": "attention",
    "network 2": "ffn",
}


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
    for axes in (left, right):
        axes.set_aspect("equal")
        axes.set_xlim(-0.5, 4.4)
        axes.set_ylim(-0.5, 4.9)
        axes.set_xlabel("first number")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylabel("second number")
    here = np.array(embedding, dtype=float)
    _arrow(left, np.zeros(2), here, "residual", "embedding")
    for write, (concept, name) in zip(
        writes, (("attention", "attention"), ("ffn", "network")), strict=True
    ):
        _arrow(left, here, here + np.array(write), concept, name)
        here = here + np.array(write)
    left.plot(*here, "o", color=theme().ink, zorder=5)
    left.text(here[0] + 0.12, here[1] + 0.18, "(3, 4)", fontsize=10)
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.sqrt(2) * np.array([np.cos(angle), np.sin(angle)])
    right.plot(*circle, color=COLOURS["norm"], linewidth=1.5)
    right.text(-0.4, 1.5, "norm", color=COLOURS["norm"], fontsize=10)
    here = np.array(embedding, dtype=float)
    _arrow(right, np.zeros(2), here, "residual", "embedding")
    for write, state, concept in zip(writes, normed, ("attention", "ffn"), strict=True):
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
        at = (middle[0] + 0.25, middle[1] - 0.05)
        axes.text(*at, name, color=COLOURS[concept], fontsize=10, ha="left", va="top")


@themed
def plot_answer(two: Dataset) -> Figure:
    """Draw three measures of each part of the stream side by side: length, part of the logit, cost of a cut.

    Args:
        two: the result ``two``; the models at the tuned learning rate are drawn.
    """
    here = two.sel(rate="tuned")
    figure, axes = subplots(1, 3, height=3.9, sharey=True)
    for panel, (name, label) in zip(
        axes,
        (("length", "length"), ("logit", "logit of the answer"), ("lost", "accuracy lost")),
        strict=True,
    ):
        rows = {part: here[name].sel(part=part).values for part in _CONCEPTS}
        seed_strip(panel, rows, label=label, concepts=_CONCEPTS)
        panel.axvline(0, color=theme().ink, linewidth=1)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.tick_params(axis="y", length=0)
    panel_letters(axes)
    return figure


_READERS = ("Q1", "K1", "V1", "net 1", "Q2", "K2", "V2", "net 2", "logits")


@themed
def plot_wires(wires: Dataset) -> Figure:
    """Draw who reads whom: a row for each part, a column for each reader, a bar in the cell for each model.

    A bar is as high as the accuracy that is lost when the wire is cut, a full cell is all of it.

    Args:
        wires: the result ``wires``.
    """
    figure, axes = subplots(2, 1, height=3.0)
    titles = {"tuned": "(a) learning rate 0.001", "large": "(b) learning rate 0.004"}
    for panel, (rate, title) in zip(axes, titles.items(), strict=True):
        panel.set_title(title, loc="left")
        lost = wires.lost.sel(rate=rate).transpose("sender", "reader", "seed").values
        _wire_map(panel, lost)
        panel.set_xticks(range(len(_READERS)), _READERS)
        panel.set_yticks(range(len(_CONCEPTS)), list(_CONCEPTS))
    axes[1].set_xlabel("reader (Q, K, V: what attention reads for queries, keys, values)")
    return figure


def _wire_map(panel: Axes, lost: Array) -> None:
    """One table of cells; where there is no wire there is no cell."""
    panel.grid(visible=False)
    senders, readers, seeds = lost.shape
    panel.set_xlim(-0.5, readers - 0.5)
    panel.set_ylim(senders - 0.5, -0.5)
    before = (0, 0, 0, 1, 2, 2, 2, 3, 4)  # sublayers below each reader
    concepts = list(_CONCEPTS.values())
    for sender, reader in np.ndindex(senders, readers):
        if sender >= before[reader] + 2:
            continue
        left, bottom = reader - 0.46, sender + 0.44
        frame = Rectangle((left, bottom), 0.92, -0.88, fill=False, linewidth=0.5)
        frame.set_edgecolor(theme().ink)
        panel.add_patch(frame)
        step = 0.92 / seeds
        for place, value in enumerate(np.clip(lost[sender, reader], 0, 1)):
            bar = Rectangle((left + place * step, bottom), step, -0.88 * float(value))
            bar.set_facecolor(COLOURS[concepts[sender]])
            bar.set_linewidth(0)
            panel.add_patch(bar)
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.tick_params(length=0)


@themed
def plot_growth(two: Dataset, twelve: Dataset, fetched: Dataset) -> Figure:
    """Draw the length of the stream by block: twelve blocks before and after training, two after it.

    Args:
        two, twelve, fetched: the results of these names.
    """
    figure, axes = subplots(height=3.8)
    trained = twelve.stream.sel(stage="trained")
    first = (fetched.mirrored.argmax("block") == 0).values
    families = (
        (twelve.stream.sel(stage="untrained"), "none", "twelve blocks, untrained", (12, 9.4)),
        (trained.isel(seed=first), "norm", "twelve blocks, the first fetches", (12, 113)),
        (two.stream.sel(rate="stated"), "residual", "two blocks, 0.0005", (1.1, 6.2)),
        (two.stream.sel(rate="tuned"), "attention", "two blocks, 0.001", (2.2, 14.2)),
        (two.stream.sel(rate="large"), "ffn", "two blocks, 0.004", (1.2, 18.5)),
    )
    for stream, concept, name, at in families:
        values = stream.transpose("seed", "state").values
        seed_lines(axes, stream.state.values, values, concept=concept, marker_every=1)
        axes.text(
            *at, name, color=COLOURS[concept], fontsize=10, ha="right" if at[0] == 12 else "left"
        )
    rest = trained.isel(seed=~first).transpose("seed", "state").values
    for row in rest:
        axes.plot(trained.state.values, row, color=COLOURS["norm"], linestyle="--", linewidth=1.2)
    axes.text(12, 51, "the second fetches", color=COLOURS["norm"], fontsize=10, ha="right")
    _plain_log(axes)
    axes.set_ylim(top=150)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("blocks passed")
    axes.set_ylabel("length of the stream")
    return figure


@themed
def plot_writers(two: Dataset) -> Figure:
    """Draw how long the writes are relative to the stream they meet, by the role of their block.

    Args:
        two: the result ``two``.
    """
    figure, axes = subplots(1, 3, height=3.0, sharey=True, sharex=True)
    concepts = {"attention": "attention", "network": "ffn"}
    roles = {"fetching": "fetching block", "other": "other block"}
    titles = {"stated": "(a) 0.0005", "tuned": "(b) 0.001", "large": "(c) 0.004"}
    for panel, (rate, title) in zip(axes, titles.items(), strict=True):
        rows = {
            f"{text},\n{writer}": two.ratio.sel(rate=rate, role=role, writer=writer).values
            for role, text in roles.items()
            for writer in concepts
        }
        colours = {name: concepts[name.partition("\n")[2]] for name in rows}
        seed_strip(panel, rows, label="", concepts=colours)
        panel.set_title(title, loc="left")
        panel.tick_params(axis="y", length=0)
    axes[0].set_xlim(left=0)
    axes[1].set_xlabel("length of the write / length of the stream")
    return figure


@themed
def plot_kept(two: Dataset, twelve: Dataset) -> Figure:
    """Draw for each block how much of the stream's direction it keeps.

    Args:
        two, twelve: the results of these names.
    """
    figure, axes = subplots(height=3.3)
    families = (
        (twelve.kept.sel(stage="untrained"), "none", "twelve blocks, untrained", (6.5, 0.8)),
        (twelve.kept.sel(stage="trained"), "norm", "twelve blocks, trained", (4.6, 1.03)),
        (two.kept.sel(rate="tuned"), "attention", "two blocks, 0.001", (2.2, 0.3)),
        (two.kept.sel(rate="large"), "ffn", "two blocks, 0.004", (1.3, 0.12)),
    )
    for kept, concept, name, at in families:
        values = kept.transpose("seed", "block").values
        seed_lines(axes, kept.block.values, values, concept=concept, marker_every=1)
        axes.text(*at, name, color=COLOURS[concept], fontsize=10)
    axes.axhline(0.9, color=theme().ink, linestyle=":", linewidth=1.2)
    axes.text(12.2, 0.87, "refines", ha="right", va="top", fontsize=10)
    axes.set_xticks(range(1, 13))
    axes.set_ylim(-0.25, 1.12)
    axes.set_xlabel("block")
    axes.set_ylabel("cosine before, after")
    return figure


def _plain_log(axes: Axes) -> None:
    """Make the y axis logarithmic with numbers such as 0.5, 1, 2 for ranges of few powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
