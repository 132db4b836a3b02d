"""Figures on attention: three words by hand, temperature, budgets, a kernel, masks, and three kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.diagrams import canvas
from measured_book.figures.plots import panel_letters, seed_lines, subplots

Array = Float[np.ndarray, "..."]
Mask = Bool[np.ndarray, "query key"]
_CONCEPTS = ("residual", "attention", "ffn", "norm")


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
        queries, keys, values, weights: one row for each token.
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
def plot_temperature(
    words: Sequence[str],
    values: Array,
    factors: Array,
    weights: Array,
    cloud: Array,
    *,
    marked: Sequence[float],
    axis_names: Sequence[str],
) -> Figure:
    """Draw one query's weights while all its scores are multiplied, and the path of what it gets.

    Args:
        words: the tokens.
        values: two numbers for each token.
        factors: what the scores are multiplied with, rising, one above another on a logarithmic axis.
        weights: one row for each factor.
        cloud: outputs of many drawn rows of scores.
        marked: factors that are marked on the path; each is one of `factors`.
        axis_names: of the two numbers of a value.
    """
    figure, (left, right) = subplots(1, 2, height=3.5)
    for column, (word, concept) in enumerate(zip(words, _CONCEPTS, strict=False)):
        left.plot(factors, weights[:, column], color=COLOURS[concept])
        left.text(
            factors[-1] * 1.15,
            weights[-1, column] + (0.05, 0.045, -0.045)[column % 3],
            word,
            color=COLOURS[concept],
            va="center",
            fontsize=11,
        )
    left.axvline(1, color=theme().ink, linestyle="--", linewidth=1)
    left.set_xscale("log", base=2)
    ticks = [float(t) for t in (1 / 16, 1 / 4, 1, 4)]
    left.xaxis.set_major_locator(FixedLocator(ticks))
    left.xaxis.set_minor_locator(NullLocator())
    left.xaxis.set_major_formatter(lambda value, _: "1" if value == 1 else _fraction(value))
    left.set_xlim(factors[0], factors[-1] * 3.6)
    left.set_ylim(-0.11, 1.09)
    left.set_xlabel("scores times")
    left.set_ylabel("weight")
    corners = np.concatenate([values, values[:1]])
    right.fill(*corners.T, color=tint("none", 0.1), zorder=0)
    right.plot(*corners.T, color=COLOURS["none"], linewidth=1.2, zorder=1)
    right.plot(*cloud.T, ".", color=COLOURS["random"], markersize=2.5, zorder=1)
    path = weights @ values
    right.plot(*path.T, color=COLOURS["attention"], linewidth=2.5, zorder=3)
    for factor in marked:
        x, y = path[int(np.argmin(np.abs(factors - factor)))]
        right.plot(x, y, "o", color=COLOURS["attention"], markersize=7, zorder=4)
        right.annotate(
            rf"$\times$ {_fraction(factor)}",
            (x, y),
            xytext=(-4, -15),
            textcoords="offset points",
            ha="right",
            zorder=5,
            fontsize=10,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": theme().paper, "edgecolor": "none"},
        )
    for word, value in zip(words, values, strict=True):
        right.plot(*value, "^", color=theme().ink, markersize=8, zorder=4)
        right.annotate(
            word, value, xytext=(7, -15), textcoords="offset points", fontsize=11, zorder=5
        )
    span = values.max(axis=0) - values.min(axis=0)
    low, high = values.min(axis=0) - 0.17 * span, values.max(axis=0) + 0.17 * span
    right.set_xlim(low[0] + 0.1 * span[0], high[0] + 0.1 * span[0])
    right.set_ylim(low[1], high[1])
    right.set_xlabel(axis_names[0])
    right.set_ylabel(axis_names[1])
    panel_letters((left, right))
    return figure


def _fraction(value: float) -> str:
    return f"{value:g}" if value >= 1 else f"1/{1 / value:g}"


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
    figure, panels = subplots(1, 2, height=3.3, sharey=True)
    for axes, weights in zip(panels, (softmax, sigmoid), strict=True):
        below = np.zeros(len(scores))
        for name, concept, part in zip(names, _CONCEPTS, weights.T, strict=False):
            above = below + part
            axes.fill_between(scores, below, above, color=tint(concept, 0.55), linewidth=0)
            axes.plot(scores, above, color=COLOURS[concept], linewidth=1.5)
            at, side = (-1, "right") if name == moved else (0, "left")
            axes.text(
                scores[at] + (0.25 if side == "left" else -0.25),
                (below[at] + above[at]) / 2,
                name,
                ha=side,
                va="center",
                fontsize=11,
            )
            below = above
        axes.set_xlim(scores[0], scores[-1])
        axes.set_xlabel(f"score of {moved}")
    panels[0].set_ylim(0, 1.05 * float(max(softmax.sum(1).max(), sigmoid.sum(1).max())))
    panels[0].set_ylabel("weights, stacked")
    for axes, title in zip(panels, ("(a) softmax", "(b) sigmoid"), strict=True):
        axes.set_title(title, loc="left", fontsize=11)
    return figure


_SMOOTHERS = {
    "average of all": ("none", "average of all"),
    "nearest": ("residual", "nearest key"),
    "fixed kernel": ("ffn", "fixed kernel"),
    "learned kernel": ("attention", "learned kernel"),
}


@themed
def plot_kernel(
    keys: Array, values: Array, along: Array, curves: Mapping[str, Array], smoothing: Dataset
) -> Figure:
    """Draw what attention makes of noisy pairs with kernels of several widths, and errors by coordinates.

    Args:
        keys, values: the pairs.
        along: the queries.
        curves: name of a kernel -> what each query gets.
        smoothing: the measured errors.
    """
    figure, (left, right) = subplots(1, 2, height=3.6)
    left.plot(keys, values, "o", color=COLOURS["random"], markersize=4, mew=0)
    for (name, curve), (concept, line) in zip(
        curves.items(), (("residual", "-"), ("attention", "-"), ("ffn", "--")), strict=False
    ):
        left.plot(along, curve, linestyle=line, color=COLOURS[concept], label=name)
    left.set_xlabel("query and keys $x$")
    left.set_ylabel("values $y$")
    low, high = left.get_ylim()
    left.set_ylim(low, high + 0.42 * (high - low))
    left.legend(loc="upper right", fontsize=10, title="width of the kernel", title_fontsize=10)
    counts = smoothing.coordinates.values
    for name, (concept, label) in _SMOOTHERS.items():
        error = smoothing.error.sel(smoother=name).transpose("seed", "coordinates").values
        seed_lines(right, np.arange(len(counts)), error, concept=concept, label="")
        right.annotate(
            label,
            (len(counts) - 1, error[:, -1].mean()),
            xytext=(4, -12 if name == "average of all" else 0),
            textcoords="offset points",
            color=COLOURS[concept],
            va="center",
            fontsize=10,
        )
    right.set_xlim(-0.2, len(counts) + 1.6)
    right.set_ylim(0, None)
    right.set_xticks(range(len(counts)), [str(count) for count in counts])
    right.set_xlabel("coordinates of a key")
    right.set_ylabel("error (root mean square)")
    panel_letters((left, right))
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


_MASKINGS = {"in time": "residual", "too late": "attention", "no mask": "none"}


@themed
def plot_dice(dice: Dataset, *, floor: float) -> Figure:
    """Draw the loss on dice while models learn, and how it changes when the next rolls are not there.

    Args:
        dice: the measured losses.
        floor: the smallest loss that is possible without knowing the next roll.
    """
    figure, (left, right) = subplots(1, 2, height=3.5, gridspec_kw={"width_ratios": (1.2, 1)})
    steps = dice.step.values
    for how, concept in _MASKINGS.items():
        curve = dice.curve.sel(masking=how).transpose("seed", "step").values
        seed_lines(left, steps, curve, concept=concept, label=how)
    left.axhline(floor, color=theme().ink, linestyle="--", linewidth=1)
    left.text(steps[-1], floor + 0.05, "ln 6", ha="right", va="bottom", fontsize=10)
    left.legend(loc="center right", fontsize=10, title="mask", title_fontsize=10)
    left.set_ylim(-0.08, floor + 0.3)
    left.set_xlabel("training steps")
    left.set_ylabel("loss (nats)")
    for row, (how, concept) in enumerate(_MASKINGS.items()):
        colour = COLOURS[concept]
        for name, face, shift in (("whole", "none", -0.16), ("alone", colour, 0.16)):
            values = dice[name].sel(masking=how).values
            at = row + shift + np.linspace(-0.1, 0.1, len(values))
            right.plot(values, at, "o", color=colour, mfc=face, markersize=5)
    row = list(_MASKINGS).index("too late")
    unseen = float(dice.alone.sel(masking="too late").min())
    for label, x, y, shift, side in (
        ("in training", floor, row - 0.16, 6, "left"),
        ("by itself", unseen, row + 0.16, -8, "right"),
    ):
        right.annotate(
            label,
            (x, y),
            xytext=(shift, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=10,
        )
    right.axvline(floor, color=theme().ink, linestyle="--", linewidth=1)
    right.set_yticks(range(len(_MASKINGS)), list(_MASKINGS))
    right.set_ylim(len(_MASKINGS) - 0.4, -0.6)
    right.tick_params(axis="y", length=0)
    right.grid(visible=False, axis="y")
    right.set_xlabel("loss (nats)")
    panel_letters((left, right))
    return figure


@dataclass(frozen=True)
class Kind:
    """One kind of attention, for `plot_kinds`.

    Attributes:
        name: of the kind.
        asking, asked: the tokens above and below.
        allowed: who may look at whom, shape (query, key).
        weights: of all queries, shape (query, key).
    """

    name: str
    asking: Sequence[str]
    asked: Sequence[str]
    allowed: Mask
    weights: Array


@themed
def plot_kinds(drawn: Sequence[Kind]) -> Figure:
    """Draw who looks at whom, and the matrix of weights beside it.

    Those that ask stand above, those that are asked below; a line is as wide as its weight.
    """
    figure, panels = subplots(
        len(drawn), 2, height=2.15, squeeze=False, gridspec_kw={"width_ratios": (1.35, 1)}
    )
    for (links, board), kind in zip(panels, drawn, strict=True):
        canvas(links, width=8.0, height=4.2)
        above, below = _places(len(kind.asking)), _places(len(kind.asked))
        for row, column in np.argwhere(kind.allowed):
            weight = float(kind.weights[row, column])
            links.plot(
                [below[column], above[row]],
                [1.05, 3.0],
                color=COLOURS["attention"],
                linewidth=0.5 + 9 * weight,
                alpha=0.35 + 0.65 * weight,
                solid_capstyle="butt",
                zorder=1,
            )
        same = kind.asking is kind.asked
        _words(links, above, kind.asking, height=3.3, concept="residual")
        _words(links, below, kind.asked, height=0.7, concept="residual" if same else "ffn")
        links.text(-0.35, 3.3, "asks", ha="left", va="center", fontsize=10)
        links.text(-0.35, 0.7, "is asked", ha="left", va="center", fontsize=10)
        _board(board, kind)
    for letter, (links, _), kind in zip("abc", panels, drawn, strict=False):
        links.set_title(f"({letter}) {kind.name}", loc="left", fontsize=11)
    return figure


def _board(axes: Axes, kind: Kind) -> None:
    """The weights as a matrix of numbers; a forbidden pair is an empty cell with a cross."""
    rows, columns = kind.allowed.shape
    for row, column in np.ndindex(rows, columns):
        weight, open_ = float(kind.weights[row, column]), bool(kind.allowed[row, column])
        axes.add_patch(
            Rectangle(
                (column - 0.47, row - 0.45),
                0.94,
                0.9,
                facecolor=tint("attention", 0.08 + 0.6 * weight) if open_ else "none",
                edgecolor=COLOURS["attention"] if open_ else theme().faint,
            )
        )
        text = f"{weight:.2f}" if open_ else "-"
        axes.text(column, row, text, ha="center", va="center", fontsize=11)
    axes.set_xlim(-0.6, max(columns, 3) - 0.4)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xticks(range(columns), kind.asked, fontsize=10)
    axes.set_yticks(range(rows), kind.asking, fontsize=10)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _words(
    axes: Axes, places: Sequence[float], words: Sequence[str], *, height: float, concept: str
) -> None:
    """A row of tokens in boxes."""
    frame = {
        "boxstyle": "round,pad=0.25",
        "facecolor": tint(concept, 0.18),
        "edgecolor": COLOURS[concept],
        "linewidth": 1.4,
    }
    for x, word in zip(places, words, strict=True):
        axes.text(x, height, word, ha="center", va="center", fontsize=11, zorder=3, bbox=frame)


def _places(count: int, left: float = 2.1, right: float = 7.3) -> list[float]:
    if count == 1:
        return [(left + right) / 2]
    return [left + (right - left) * place / (count - 1) for place in range(count)]
