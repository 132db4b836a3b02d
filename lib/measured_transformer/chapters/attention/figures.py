"""Figures on attention: a pass of three words by hand, the triangle of values, budgets, masks, three kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from measured_transformer.figures.diagrams import canvas
from measured_transformer.figures.plots import legend_above, panel_letters, subplots
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]
Mask = Bool[np.ndarray, "query key"]
_CONCEPTS = ("residual", "attention", "ffn", "norm")
_MARKERS = ("o", "s", "^", "D")


@themed
def plot_by_hand(
    words: Sequence[str],
    queries: Array,
    keys: Array,
    values: Array,
    weights: Array,
    *,
    asking: int,
    kinds: Sequence[str],
    contents: Sequence[str],
) -> Figure:
    """Draw one query's way: its row against every key, the scores, the weights, the average of the values.

    Args:
        words: the tokens.
        queries, keys, values, weights: one row a token.
        asking: number of the token whose row is followed.
        kinds: names of the columns of queries and keys.
        contents: names of the columns of the values.
    """
    width, wide = len(kinds), len(contents)
    scores = keys @ queries[asking] / np.sqrt(width)
    figure, (above, below) = subplots(2, 1, height=2.55, gridspec_kw={"height_ratios": (5.4, 4.4)})
    canvas(above, width=12.8, height=5.4)
    canvas(below, width=12.8, height=5.4)
    below.set_ylim(0.9, 5.3)
    # Above: the query over the keys, and the scores that come of it.
    _row_of_names(above, kinds, left=2.4, bottom=4.95)
    _matrix(above, queries[asking][None], left=2.4, top=4.7, concept="attention", size=1.6)
    above.text(2.1, 4.25, f"query of\n{words[asking]}", ha="right", va="center", fontsize=11)
    _matrix(above, keys, left=2.4, top=3.3, concept="residual", names=words, size=1.6)
    above.text(2.4, 0.25, "keys", ha="left", va="center", fontsize=11)
    _matrix(above, scores[:, None], left=10.6, top=3.3, concept="none", size=1.6)
    above.text(11.4, 3.55, f"query · key\n/ √{width}", ha="center", va="bottom", fontsize=11)
    above.text(11.4, 0.25, "scores", ha="center", va="center", fontsize=11)
    _arrow(above, (9.1, 1.95), (10.4, 1.95))
    # Below: the weights, times the values, added up.
    _matrix(
        below, weights[asking][:, None], left=2.4, top=4.4, concept="none", names=words, size=1.6
    )
    below.text(3.2, 4.55, "weights", ha="center", va="bottom", fontsize=11)
    below.text(4.55, 3.05, r"$\times$", ha="center", va="center", fontsize=16)
    _row_of_names(below, contents, left=5.1, bottom=4.65)
    _matrix(below, values, left=5.1, top=4.4, concept="ffn", size=1.6)
    below.text(5.1, 1.35, "values", ha="left", va="center", fontsize=11)
    output = (weights[asking] @ values)[None]
    left = 12.6 - 1.6 * wide
    _arrow(below, (5.2 + 1.6 * wide, 3.05), (left - 0.2, 3.05))
    _matrix(below, output, left=left, top=3.5, concept="attention", size=1.6)
    below.text(left, 2.25, f"what {words[asking]} gets", ha="left", va="center", fontsize=11)
    return figure


def _row_of_names(axes: Axes, names: Sequence[str], *, left: float, bottom: float) -> None:
    for place, name in enumerate(names):
        axes.text(left + 1.6 * place + 0.8, bottom, name, ha="center", va="center", fontsize=11)


def _matrix(
    axes: Axes,
    cells: Array,
    *,
    left: float,
    top: float,
    concept: str,
    size: float,
    names: Sequence[str] = (),
) -> None:
    """A table of numbers in the concept's tint, its first row on top."""
    height = 0.9
    for row, line in enumerate(cells):
        for column, value in enumerate(line):
            place = (left + size * column, top - height * (row + 1))
            strength = 0.12 + 0.4 * min(1.0, abs(float(value)) / 4) if value else 0.04
            axes.add_patch(
                Rectangle(
                    place,
                    size,
                    height,
                    facecolor=tint(concept, strength),
                    edgecolor=COLOURS[concept],
                    linewidth=1.2,
                )
            )
            text = f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"
            axes.text(
                place[0] + size / 2,
                place[1] + height / 2,
                text,
                ha="center",
                va="center",
                fontsize=12,
            )
    for row, name in enumerate(names):
        axes.text(
            left - 0.3, top - height * (row + 0.5), name, ha="right", va="center", fontsize=11
        )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": theme().ink,
            "linewidth": 1.6,
            "mutation_scale": 14,
        },
    )


@themed
def plot_hull(
    words: Sequence[str], values: Array, outputs: Array, cloud: Array, *, axis_names: Sequence[str]
) -> Figure:
    """Draw values as corners, outputs inside, and where random scores would bring an output.

    Args:
        words: the tokens.
        values: two numbers a token.
        outputs: what each token gets.
        cloud: outputs of many drawn rows of scores.
        axis_names: of the two numbers.
    """
    figure, axes = subplots(height=3.8)
    corners = np.concatenate([values, values[:1]])
    axes.fill(*corners.T, color=tint("ffn", 0.14), zorder=0)
    axes.plot(*corners.T, color=COLOURS["ffn"], linewidth=1.5, zorder=1)
    axes.plot(*cloud.T, ".", color=COLOURS["random"], markersize=3, zorder=1, label="any scores")
    axes.plot(*values.T, "^", color=COLOURS["ffn"], markersize=11, label="values", zorder=3)
    axes.plot(*outputs.T, "s", color=COLOURS["attention"], markersize=9, label="outputs", zorder=4)
    for word, value in zip(words, values, strict=True):
        axes.annotate(word, value, xytext=(9, -15), textcoords="offset points", fontsize=12)
    for word, output in zip(words, outputs, strict=True):
        axes.annotate(
            f"{word} gets", output, xytext=(9, 4), textcoords="offset points", fontsize=11, zorder=5
        )
    axes.set_xlabel(axis_names[0])
    axes.set_ylabel(axis_names[1])
    axes.set_xlim(values[:, 0].min() - 0.3, values[:, 0].max() + 0.8)
    axes.set_ylim(values[:, 1].min() - 0.45, values[:, 1].max() + 0.5)
    legend_above(axes)
    return figure


@themed
def plot_budget(
    scores: Array, softmax: Array, sigmoid: Array, names: Sequence[str], *, moved: str
) -> Figure:
    """Draw the weights of one query, stacked, while one score moves: with softmax and without a budget.

    Args:
        scores: what the moved score is set to.
        softmax, sigmoid: one row of weights for each of them.
        names: of the keys, in the order of the weights.
        moved: name of the key whose score moves.
    """
    figure, panels = subplots(2, 1, height=2.9, sharex=True)
    for axes, weights, label in zip(
        panels, (softmax, sigmoid), ("softmax weights", "sigmoid weights"), strict=True
    ):
        below = np.zeros(len(scores))
        for place, name in enumerate(names):
            above = below + weights[:, place]
            concept = _CONCEPTS[place % len(_CONCEPTS)]
            axes.fill_between(
                scores, below, above, color=tint(concept, 0.55), linewidth=0, label=name
            )
            axes.plot(scores, above, color=COLOURS[concept], linewidth=1.5)
            below = above
        axes.set_ylabel(f"{label},\nstacked")
        axes.set_ylim(0, None)
        axes.set_xlim(scores[0], scores[-1])
    panels[-1].set_xlabel(f"score of {moved}")
    legend_above(panels[0], columns=len(names))
    for letter, axes in zip("ab", panels, strict=True):
        axes.text(0.015, 0.9, f"({letter})", transform=axes.transAxes, fontweight="bold")
    return figure


@themed
def plot_masks(allowed: Mapping[str, Mask], words: Sequence[str]) -> Figure:
    """Draw masks as boards: filled where a query (row) may look at a key (column).

    Args:
        allowed: name -> True where attention is allowed, shape (query, key).
        words: the tokens, of queries and keys.
    """
    figure, panels = subplots(1, len(allowed), height=2.9, sharey=True)
    for axes, (name, mask) in zip(np.atleast_1d(panels), allowed.items(), strict=True):
        rows, columns = mask.shape
        for row in range(rows):
            for column in range(columns):
                axes.add_patch(
                    Rectangle(
                        (column - 0.45, row - 0.45),
                        0.9,
                        0.9,
                        facecolor=COLOURS["attention"] if mask[row, column] else "none",
                        edgecolor=COLOURS["attention"] if mask[row, column] else theme().faint,
                    )
                )
        axes.set_xlim(-0.6, columns - 0.4)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.set_aspect("equal")
        axes.set_xticks(range(columns), words, rotation=60, fontsize=10)
        axes.set_yticks(range(rows), words, fontsize=10)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(f"keys: {name}")
    np.atleast_1d(panels)[0].set_ylabel("queries")
    panel_letters(np.atleast_1d(panels))
    return figure


@dataclass(frozen=True)
class Kind:
    """One kind of attention, for `plot_kinds`.

    Attributes:
        name: of the kind.
        asking, asked: the tokens above and below.
        allowed: who may look at whom, shape (query, key).
        followed: number of the asking token that is drawn strongly.
        weights: of its row; None draws them all alike.
    """

    name: str
    asking: Sequence[str]
    asked: Sequence[str]
    allowed: Mask
    followed: int
    weights: Array | None = None


@themed
def plot_kinds(drawn: Sequence[Kind]) -> Figure:
    """Draw who may look at whom: those that ask above, those that are asked below, lines where allowed."""
    figure, panels = subplots(len(drawn), 1, height=2.1)
    for axes, kind in zip(np.atleast_1d(panels), drawn, strict=True):
        width = 12.8
        canvas(axes, width=width, height=4.2)
        above, below = _places(len(kind.asking), width), _places(len(kind.asked), width)
        _links(axes, kind, above, below)
        same = kind.asking is kind.asked
        _words(axes, above, kind.asking, height=3.3, concept="residual", bold=kind.followed)
        _words(axes, below, kind.asked, height=0.7, concept="residual" if same else "none")
        if kind.weights is not None:
            seen = kind.allowed[kind.followed]
            for x, weight, open_ in zip(below, kind.weights, seen, strict=True):
                if open_:
                    axes.text(x, 0.0, f"{weight:.2f}", ha="center", va="center", fontsize=11)
        axes.text(0.0, 3.3, "asks", ha="left", va="center", fontsize=11)
        axes.text(0.0, 0.7, "is asked", ha="left", va="center", fontsize=11)
        axes.set_title(kind.name, loc="right", fontsize=12)
    panel_letters(np.atleast_1d(panels))
    return figure


def _links(axes: Axes, kind: Kind, above: Sequence[float], below: Sequence[float]) -> None:
    """A line for each pair that is allowed; those of the token that is followed as wide as its weights."""
    for row, column in np.argwhere(kind.allowed):
        strong = row == kind.followed
        width = 1.0
        if strong:
            width = 2.5 if kind.weights is None else 0.8 + 12 * float(kind.weights[column])
        axes.plot(
            [below[column], above[row]],
            [1.0, 3.0],
            color=COLOURS["attention"] if strong else theme().faint,
            linewidth=width,
            zorder=2 if strong else 1,
            solid_capstyle="butt",
        )


def _words(
    axes: Axes,
    places: Sequence[float],
    words: Sequence[str],
    *,
    height: float,
    concept: str,
    bold: int | None = None,
) -> None:
    """A row of tokens in boxes."""
    frame = {
        "boxstyle": "round,pad=0.25",
        "facecolor": tint(concept, 0.18),
        "edgecolor": COLOURS[concept],
        "linewidth": 1.4,
    }
    for place, (x, word) in enumerate(zip(places, words, strict=True)):
        axes.text(
            x,
            height,
            word,
            ha="center",
            va="center",
            fontsize=12,
            zorder=3,
            fontweight="bold" if place == bold else "normal",
            bbox=frame,
        )


def _places(count: int, width: float) -> list[float]:
    left, right = 2.6, width - 0.9
    if count == 1:
        return [(left + right) / 2]
    return [left + (right - left) * place / (count - 1) for place in range(count)]
