"""Figures of *A Transformer in one sitting*: the whole machine, a head by hand, and what it learns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from measured_transformer.viewer.style import COLOURS, look, theme, themed, tint
from numpy.typing import ArrayLike
from xarray import Dataset

from measured_book.figures.diagrams import box, canvas, plus, stream, wire
from measured_book.figures.plots import seed_lines, subplots

_STREAM, _BRANCH, _NOTE = 2.2, 4.5, 6.55


@themed
def plot_machine(layers: int = 2) -> Figure:
    """Draw the whole machine from tokens to probabilities, with the shape of the stream on its left."""
    figure, axes = subplots(height=7.95)
    canvas(axes, width=10.4, height=12.9)
    _tokens_in(axes)
    top = _layer(axes, bottom=2.45)
    _frame(axes, low=2.32, high=top - 0.12, times=layers)
    _tokens_out(axes, low=top)
    return figure


def _tokens_in(axes: Axes) -> None:
    for place, token in enumerate("the"):
        axes.text(
            _STREAM + 0.62 * (place - 1),
            0.42,
            token,
            ha="center",
            va="center",
            fontsize=14,
            family="monospace",
        )
    wire(axes, [(_STREAM, 0.72), (_STREAM, 1.02)])
    _lookup(axes, (_STREAM, 1.4), "embedding")
    _note(axes, 1.4, "a vector for each token")
    stream(axes, (_STREAM, 1.79), (_STREAM, 2.5), arrow=False)
    _shape(axes, 1.0, "(T)")
    _shape(axes, 2.0, "(T, C)")


def _layer(axes: Axes, bottom: float) -> float:
    """One block, whose stream runs upwards; gives where it ends."""
    words = {
        "attention": (
            "takes in a weighted mean of\nvalues, here and before;\ntold of places by rotation",
            4,
        ),
        "ffn": ("works on each position\nby itself", 1),
    }
    step = 3.35
    for number, concept in enumerate(("attention", "ffn")):
        low = bottom + number * step
        stream(axes, (_STREAM, low), (_STREAM, low + step), arrow=False)
        wire(axes, [(_STREAM, low + 0.3), (_BRANCH, low + 0.3), (_BRANCH, low + 0.62)])
        box(axes, (_BRANCH, low + 0.92), "norm")
        _note(axes, low + 0.92, "scales a copy to one size")
        wire(axes, [(_BRANCH, low + 1.2), (_BRANCH, low + 1.42)], arrow=False)
        text, copies = words[concept]
        for copy in reversed(range(1, copies)):
            _behind(axes, (_BRANCH + 0.07 * copy, low + 1.84 + 0.07 * copy), concept)
        box(axes, (_BRANCH, low + 1.84), concept)
        _note(axes, low + 1.84, text)
        wire(
            axes, [(_BRANCH, low + 2.25 + 0.07 * (copies - 1)), (_BRANCH, low + 2.75)], arrow=False
        )
        wire(axes, [(_BRANCH, low + 2.75), (_STREAM + 0.27, low + 2.75)])
        _note(axes, low + 2.75, "adds to the stream")
        plus(axes, (_STREAM, low + 2.75))
    return bottom + 2 * step


def _tokens_out(axes: Axes, low: float) -> None:
    stream(axes, (_STREAM, low), (_STREAM, low + 0.75))
    _shape(axes, low + 0.28, "(T, C)")
    box(axes, (_STREAM, low + 1.05), "norm", width=2.1)
    wire(axes, [(_STREAM, low + 1.33), (_STREAM, low + 1.6)])
    _lookup(axes, (_STREAM, low + 1.98), "unembedding")
    _note(axes, low + 1.98, "a score for each next token")
    wire(axes, [(_STREAM, low + 2.36), (_STREAM, low + 2.72)])
    axes.text(_STREAM, low + 3.0, "softmax", ha="center", va="center", fontsize=12)
    _note(axes, low + 3.0, "how likely each is")
    _shape(axes, low + 2.55, "(T, V)")


def _lookup(axes: Axes, centre: tuple[float, float], text: str) -> None:
    """A table of vectors: a box in the stream's colour."""
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - 1.05, centre[1] - 0.38),
            2.1,
            0.76,
            boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=tint("residual"),
            edgecolor=COLOURS["residual"],
            linewidth=2.0,
            zorder=3,
        )
    )
    axes.text(*centre, text, ha="center", va="center", fontsize=12, zorder=4)


def _behind(axes: Axes, centre: tuple[float, float], concept: str) -> None:
    """The rim of one more head, behind the box in front."""
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - 1.15, centre[1] - 0.41),
            2.3,
            0.82,
            boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=tint(concept),
            edgecolor=COLOURS[concept],
            linewidth=1.2,
            zorder=2.5,
        )
    )


def _frame(axes: Axes, *, low: float, high: float, times: int) -> None:
    """A dashed frame around what is repeated, and how often."""
    axes.add_patch(
        FancyBboxPatch(
            (1.2, low),
            4.95,
            high - low,
            boxstyle="round,pad=0,rounding_size=0.2",
            fill=False,
            edgecolor=COLOURS["random"],
            linestyle="--",
            linewidth=1.4,
            zorder=0,
        )
    )
    axes.text(
        0.62,
        (low + high) / 2,
        f"{times} \N{MULTIPLICATION SIGN}",
        ha="center",
        va="center",
        fontsize=15,
    )
    axes.text(0.62, (low + high) / 2 - 0.5, "layer", ha="center", va="center", fontsize=11)


def _note(axes: Axes, height: float, text: str) -> None:
    axes.text(_NOTE, height, text, ha="left", va="center", fontsize=11)


def _shape(axes: Axes, height: float, text: str) -> None:
    axes.text(0.62, height, text, ha="center", va="center", fontsize=11, color=COLOURS["residual"])


@themed
def plot_head(scores: ArrayLike, pattern: ArrayLike, names: Sequence[str]) -> Figure:
    """Draw the scores of a head, the same with what lies ahead struck out, and the weights, (query, key)."""
    values = np.asarray(scores, dtype=float)
    ahead = np.triu(np.ones_like(values, dtype=bool), 1)
    figure, panels = subplots(1, 3, height=2.7)
    titles = ("(a) scores", "(b) masked", "(c) weights")
    for axes, title, shown in zip(
        panels, titles, (values, values, np.asarray(pattern)), strict=True
    ):
        axes.set_title(title, loc="left", fontsize=12)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        for (row, column), number in np.ndenumerate(shown):
            hidden = ahead[row, column] and title != "(a) scores"
            strength = number if title == "(c) weights" else number / (2 * values.max())
            axes.add_patch(
                Rectangle(
                    (column - 0.5, row - 0.5),
                    1,
                    1,
                    facecolor=theme().faint
                    if hidden
                    else tint("attention", 0.75 * float(strength)),
                    edgecolor=theme().paper,
                    linewidth=2,
                )
            )
            text = ("$-\\infty$" if title == "(b) masked" else "0") if hidden else f"{number:.2g}"
            axes.text(column, row, text, ha="center", va="center", fontsize=12)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("key")
    panels[0].set_ylabel("query")
    return figure


def _table_loss(tables: Dataset, context: int) -> float:
    return float(tables.loss.sel(part="validation", context=context).isel(seed=0))


@themed
def plot_tables(tables: Dataset) -> Figure:
    """Draw the loss of tables of counts by the length of their contexts, and how many contexts are new."""
    figure, (left, right) = subplots(1, 2, height=3.3)
    at = tables.context.values
    loss = tables.loss.sel(part="validation").isel(seed=0).values
    for axes, values in ((left, loss), (right, 100 * tables.unseen.isel(seed=0).values)):
        axes.plot(at, values, **look("none"))
        axes.set_xticks(at)
        axes.set_xlabel("characters looked at")
    left.set_ylim(0, None)
    left.set_ylabel("nats per character")
    right.set_ylabel("contexts never seen, %")
    left.set_title("(a)", loc="left", fontweight="bold")
    right.set_title("(b)", loc="left", fontweight="bold")
    return figure


@themed
def plot_learning(sitting: Dataset, tables: Dataset, vocab: int) -> Figure:
    """Draw the loss of every seed over the steps, with lines at what guessing and counting reach.

    Args:
        sitting, tables: the results.
        vocab: different characters, for the line of who thinks them all alike.
    """
    figure, axes = subplots(height=4.0)
    steps = sitting.step.values
    curve = sitting.curve.transpose("seed", "step").values
    pairs = float(tables.bigram.sel(part="validation").isel(seed=0))
    best = float(tables.loss.sel(part="validation").isel(seed=0).min())
    levels = {
        "all alike": float(np.log(vocab)),
        "table of single characters": _table_loss(tables, 0),
        "table of pairs": pairs,
        "table of triples": _table_loss(tables, 2),
        "the best table": best,
    }
    for name, level in levels.items():
        axes.axhline(level, color=COLOURS["none"], linestyle="--", linewidth=1.1, zorder=1)
        axes.text(steps[-1], level + 0.04, name, ha="right", va="bottom", fontsize=10)
    seed_lines(axes, steps, curve, concept="attention", label="")
    axes.set_xlim(0, steps[-1])
    axes.set_ylim(0, 1.06 * curve.max())
    axes.set_xlabel("training steps")
    axes.set_ylabel("nats per character, held out")
    return figure


_PLACES = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 12), (13, 16), (17, 32), (33, 64))
"""First and last of the places over which a mean is drawn."""


@themed
def plot_by_position(sitting: Dataset, tables: Dataset) -> Figure:
    """Draw the model's loss by how many characters it sees, beside tables that look at so many."""
    figure, axes = subplots(height=3.6)
    loss = sitting.by_position.transpose("seed", "position")
    values = [loss.sel(position=slice(*ends)).mean("position").values for ends in _PLACES]
    at = [np.sqrt(first * last) for first, last in _PLACES]
    seed_lines(axes, at, np.array(values).T, concept="attention", label="the GPT")
    contexts = tables.context.values[1:]
    counted = tables.loss.sel(part="validation").isel(seed=0).values[1:]
    axes.plot(contexts, counted, **look("none"), label="tables of counts")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.set_ylim(0, None)
    axes.set_xlabel("characters looked at")
    axes.set_ylabel("nats per character, held out")
    axes.legend(loc="lower left")
    return figure
