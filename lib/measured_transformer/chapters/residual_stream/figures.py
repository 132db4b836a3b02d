"""Figures about the residual stream: results in, drawings out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from xarray import Dataset

from measured_transformer.figures.plots import panel_letters, seed_lines, seed_strip, subplots
from measured_transformer.figures.style import COLOURS, theme, themed

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
    right.text(1.5, 0.28, "norm", color=COLOURS["norm"], fontsize=10)
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


@themed
def plot_wires(wires: Dataset) -> Figure:
    """Draw for each model who reads whom: a row for each part, a column for each reader, a cell for a cut.

    Args:
        wires: the result ``wires``.
    """
    figure, axes = subplots(2, 5, height=2.6)
    parts = ["tokens", "positions", "attn 1", "net 1", "attn 2", "net 2"]
    readers = ["attn 1", "net 1", "attn 2", "net 2", "logits"]
    for place, panel in enumerate(axes.flat):
        lost = wires.lost.isel(seed=place).transpose("sender", "reader").values
        _wire_map(panel, lost)
        panel.set_title(f"model {place + 1}", fontsize=9.5, loc="left")
        panel.set_xticks(range(len(readers)), readers, rotation=90, fontsize=8.5)
        shown = parts if place % 5 == 0 else [""] * len(parts)
        panel.set_yticks(range(len(parts)), shown, fontsize=8.5)
        if place < 5:
            panel.set_xticklabels([])
    return figure


def _wire_map(panel: Axes, lost: Array) -> None:
    """One matrix: blue as deep as the accuracy that is lost; outlined where there is something to read."""
    panel.grid(visible=False)
    panel.set_xlim(-0.5, lost.shape[1] - 0.5)
    panel.set_ylim(lost.shape[0] - 0.5, -0.5)
    panel.set_aspect("equal")
    for (sender, reader), value in np.ndenumerate(lost):
        if sender >= reader + 2:
            continue
        strength = float(np.clip(value, 0, 1))
        panel.add_patch(
            Rectangle(
                (reader - 0.5, sender - 0.5),
                1,
                1,
                facecolor=(*_rgb(COLOURS["residual"]), strength),
                edgecolor=theme().ink,
                linewidth=0.4,
            )
        )
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.tick_params(length=0)


def _rgb(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[return-value]


@themed
def plot_growth(two: Dataset, twelve: Dataset) -> Figure:
    """Draw the length of the stream by block: twelve blocks before and after training, and two trained ones.

    Args:
        two, twelve: the results of these names.
    """
    figure, axes = subplots(height=3.6)
    families = (
        (twelve.stream.sel(stage="untrained"), "none", "twelve blocks, untrained", (12, 9.4)),
        (twelve.stream.sel(stage="trained"), "norm", "twelve blocks, trained", (12, 62)),
        (two.stream.sel(rate="tuned"), "attention", "two blocks, trained", (2.3, 27)),
    )
    for stream, concept, name, at in families:
        values = stream.transpose("seed", "state").values
        seed_lines(axes, stream.state.values, values, concept=concept, marker_every=1)
        axes.text(
            *at, name, color=COLOURS[concept], fontsize=10, ha="right" if at[0] == 12 else "left"
        )
    _plain_log(axes)
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
    figure, axes = subplots(1, 2, height=3.0, sharey=True, sharex=True)
    concepts = {"attention": "attention", "network": "ffn"}
    roles = {"fetching": "fetching block", "other": "other block"}
    titles = {"tuned": "(a) tuned rate", "stated": "(b) 0.0005"}
    for panel, (rate, title) in zip(axes, titles.items(), strict=True):
        rows = {
            f"{text},\n{writer}": two.ratio.sel(rate=rate, role=role, writer=writer).values
            for role, text in roles.items()
            for writer in concepts
        }
        colours = {name: concepts[name.partition("\n")[2]] for name in rows}
        seed_strip(panel, rows, label="write / stream", concepts=colours)
        panel.set_title(title, loc="left")
        panel.tick_params(axis="y", length=0)
    axes[0].set_xlim(left=0)
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
        (two.kept.sel(rate="tuned"), "attention", "two blocks, trained", (2.3, 0.3)),
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
