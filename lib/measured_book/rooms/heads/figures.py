"""Figures about heads: attention as a sum, the two circuits of a head, heads that build on one another.

Matrices that are drawn are real ones, computed by the chapter. Attention is orange, the stream blue; one head
is told from another by its number and by how strong its colour is. What is measured comes in as a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.diagrams import canvas
from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

Array = Float[np.ndarray, "..."]
_STRENGTHS = (0.28, 0.5, 0.75)
_HEADS = {1: "attention", 2: "residual", 4: "ffn", 8: "norm"}
"""Looks of the arms with one, two, four and eight heads."""
_CLOUDS = {
    ("untrained", 0): ("none", "s", "layer 0, untrained"),
    ("untrained", 1): ("random", "o", "layer 1, untrained"),
    ("trained", 0): ("attention", "s", "layer 0"),
    ("trained", 1): ("residual", "o", "layer 1"),
}
"""How heads of a state and a layer are drawn, and called."""
PATHS = {
    "whole": "nothing",
    "q": "to queries",
    "k": "to keys",
    "v": "to values",
    "direct": "past layer 1",
}
"""What is cut -> its name in the figure."""


def _matrix(
    axes: Axes,
    corner: tuple[float, float],
    matrix: Array,
    strength: float,
    concept: str = "attention",
) -> None:
    """Draw a small matrix of numbers as a grid whose lower left corner is given; a cell is one by one."""
    rows, columns = matrix.shape
    left, bottom = corner
    for row in range(rows):
        for column in range(columns):
            low = (left + column, bottom + rows - 1 - row)
            axes.add_patch(
                Rectangle(
                    low,
                    1,
                    1,
                    facecolor=tint(concept, strength),
                    edgecolor=theme().paper,
                    linewidth=1.2,
                )
            )
            axes.text(
                low[0] + 0.5,
                low[1] + 0.47,
                f"{matrix[row, column]:g}".replace("-", "\N{MINUS SIGN}"),
                ha="center",
                va="center",
                fontsize=11,
            )


def _sign(axes: Axes, x: float, y: float, sign: str) -> None:
    axes.text(x, y, sign, ha="center", va="center", fontsize=15)


@themed
def plot_block_product(outputs: Sequence[Array], blocks: Sequence[Array]) -> Figure:
    """Draw heads side by side times stacked blocks, and the same product as a sum with a term a head.

    Args:
        outputs: of each head, (position, width of the head); two or three heads.
        blocks: of each head, (width of the head, width of the model).

    Raises:
        ValueError: when there are not two or three heads with a block each.
    """
    if len(outputs) != len(blocks) or not 2 <= len(outputs) <= len(_STRENGTHS):
        raise ValueError(
            f"expected two or three heads with a block each, got {len(outputs)} and {len(blocks)}"
        )
    figure, (above, below) = subplots(2, 1, height=2.4)
    n, d = outputs[0].shape[0], blocks[0].shape[1]
    widths = [each.shape[1] for each in outputs]
    total, tall = sum(widths), max(sum(widths), n)
    whole = sum(o @ b for o, b in zip(outputs, blocks, strict=True))
    across = sum(max(w, 1) + d + 2.4 for w in widths) + d
    for axes, height in ((above, tall + 1.6), (below, max(n, *widths) + 1.6)):
        canvas(axes, width=across, height=height)

    middle = tall / 2
    start = (across - (total + 2 * d + 3.2)) / 2
    x, y = start, float(tall)
    for number, (output, block) in enumerate(zip(outputs, blocks, strict=True)):
        strength = _STRENGTHS[number]
        _matrix(above, (x, middle - n / 2), output, strength)
        above.text(
            x + widths[number] / 2,
            middle + n / 2 + 0.15,
            f"$O^{number + 1}$",
            ha="center",
            va="bottom",
        )
        x += widths[number]
        y -= widths[number]
        _matrix(above, (start + total + 1.6, y), block, strength)
        above.text(
            start + total + 1.6 + d + 0.2,
            y + widths[number] / 2,
            f"$W^{{O_{number + 1}}}$",
            va="center",
        )
    _sign(above, start + total + 0.8, middle, "·")
    _sign(above, start + total + d + 3.5, middle, "=")
    _matrix(above, (start + total + d + 4.3, middle - n / 2), whole, 0.28, "residual")

    x, middle = 0.0, max(n, *widths) / 2
    for number, (output, block) in enumerate(zip(outputs, blocks, strict=True)):
        strength = _STRENGTHS[number]
        _matrix(below, (x, middle - n / 2), output, strength)
        x += widths[number] + 0.8
        _sign(below, x - 0.4, middle, "·")
        _matrix(below, (x, middle - widths[number] / 2), block, strength)
        x += d + 1.6
        _sign(below, x - 0.8, middle, "+" if number + 1 < len(outputs) else "=")
    _matrix(below, (x, middle - n / 2), whole, 0.28, "residual")
    panel_letters((above, below))
    return figure


@themed
def plot_chains(
    tokens: Sequence[str], panels: Mapping[str, tuple[Array, Array, str]], place: int
) -> Figure:
    """Draw where two heads in a row look, a panel a way of building on one another.

    Args:
        tokens: of the sequence.
        panels: name -> the patterns (query, key) of the earlier and of the later head, and what the later head
            uses the earlier one's note for: q, k or v.
        place: the position whose view is followed: the later head's arrows end there.
    """
    figure, axes = subplots(len(panels), 1, height=2.15)
    for each, (name, (earlier, later, use)) in zip(np.ravel(axes), panels.items(), strict=True):
        canvas(each, width=len(tokens) + 1.3, height=3.6)
        each.set_xlim(left=-0.8)
        for row in range(3):
            for column in range(len(tokens)):
                each.plot(
                    column + 1,
                    0.55 + 1.25 * row,
                    "o",
                    color=COLOURS["residual"],
                    markersize=7 if row else 0,
                    zorder=3,
                )
        for column, token in enumerate(tokens):
            each.plot(
                [column + 1] * 2, [0.85, 3.05], color=tint("residual", 0.5), linewidth=3, zorder=0
            )
            each.text(column + 1, 0.4, token, ha="center", va="center", fontsize=14)
        for height, level in ((0.75, "layer 0"), (2.0, "layer 1")):
            each.text(-0.15, height + 0.55, level, ha="center", va="center", fontsize=10)
        seen = [j for j in range(len(tokens)) if later[place, j] > 0.05]
        _looks(each, place, seen, later, 1.8, strength=1.0)
        for query in [place] if use == "q" else seen:
            sources = [j for j in range(len(tokens)) if earlier[query, j] > 0.05]
            _looks(each, query, sources, earlier, 0.6, strength=0.55)
        each.text(len(tokens) + 1.25, 3.3, name, ha="right", va="center", fontweight="bold")
    return figure


def _looks(
    axes: Axes, query: int, sources: Sequence[int], pattern: Array, low: float, *, strength: float
) -> None:
    """Draw arrows that bring what was looked at from one level to the next."""
    for source in sources:
        axes.add_patch(
            FancyArrowPatch(
                (source + 1, low + (0.22 if low < 1 else 0.0)),
                (query + 1, low + 1.15),
                arrowstyle="-|>",
                mutation_scale=15,
                linewidth=1 + 2.2 * float(pattern[query, source]),
                color=COLOURS["attention"],
                alpha=strength,
                shrinkA=3,
                shrinkB=3,
                zorder=2,
            )
        )


@themed
def plot_learning(places: Dataset) -> Figure:
    """Draw accuracy over training steps for models with one to eight heads; one head is followed for longer."""
    figure, axes = subplots(height=3.7)
    steps, late = places.step.values, places.late.values
    judged = int(steps[-1])
    for heads, concept in _HEADS.items():
        values, across = places.accuracy.sel(heads=heads).transpose("seed", "step").values, steps
        if heads == 1:
            later = places.one_later.transpose("seed", "late").values
            values, across = np.concatenate((values, later), axis=1), np.concatenate((steps, late))
        name = f"{heads} head{'s' if heads > 1 else ''}"
        seed_lines(axes, across, values, concept=concept, label=name)
    axes.axvline(judged, color=theme().ink, linestyle="--", linewidth=1)
    axes.axhline(1 / 6, color=theme().ink, linestyle=":", linewidth=1)
    axes.set_xlabel("training steps")
    axes.set_ylabel("accuracy")
    axes.set_ylim(0, 1.03)
    legend_above(axes, columns=4)
    return figure


@themed
def plot_line_and_circle(
    line: Float[np.ndarray, "query key"], circle: Float[np.ndarray, "direction place"], reach: float
) -> Figure:
    """Draw the weight of each key over all queries, for a head that is one wide and one that is two wide.

    Args:
        line: weights by a head that is one wide, for queries from `-reach` to `reach`.
        circle: weights by a head that is two wide, for queries once around the circle.
        reach: the largest query on the line.
    """
    figure, panels = subplots(2, 1, height=2.6)
    across = (np.linspace(-reach, reach, len(line)), np.linspace(0, 360, len(circle)))
    for axes, weights, x in zip(panels, (line, circle), across, strict=True):
        for key, column in enumerate(weights.T):
            strength = 0.35 + 0.65 * key / (weights.shape[1] - 1)
            colour = tint("attention", strength)
            axes.plot(x, column, color=colour, linewidth=2.2)
            top = int(column.argmax())
            edge = {0: "left", len(x) - 1: "right"}.get(top, "center")
            axes.text(
                x[top], column[top] + 0.03, f"{key + 1}", ha=edge, va="bottom", color=theme().ink
            )
        axes.set_ylim(0, 1.15)
        axes.set_xlim(x[0], x[-1])
        axes.set_ylabel("weight of each key")
    panels[0].set_xlabel("query, one number")
    panels[1].set_xlabel("direction of the query, in degrees")
    panels[1].set_xticks(range(0, 361, 45))
    panel_letters(panels)
    return figure


@themed
def plot_head_counts(counts: Dataset) -> Figure:
    """Draw the loss against the number of heads at equal parameters, a panel a task."""
    figure, axes = subplots(counts.task.size, 1, height=2.1, sharex=True)
    heads = counts.heads.values
    for each, task in zip(np.ravel(axes), counts.task.values, strict=True):
        values = counts.loss.sel(task=task).transpose("seed", "heads").values
        seed_lines(each, heads, values, concept="attention", label="", marker_every=1)
        each.set_xscale("log", base=2)
        each.set_xticks(heads.tolist(), [f"{count}" for count in heads.tolist()])
        each.set_ylabel("loss (nats)")
        each.set_title(str(task), loc="right", fontsize=11)
    axes[-1].set_xlabel("heads, together 64 wide")
    panel_letters(axes)
    return figure


@themed
def plot_roles(induction: Dataset) -> Figure:
    """Draw every head's weight on the token before against its weight behind earlier copies, an arm a panel."""
    figure, panels = subplots(induction.deep.size, 1, height=3.3, sharex=True, sharey=True)
    for axes, arm in zip(np.ravel(panels), induction.deep.values, strict=True):
        for (state, layer), (concept, marker, name) in _CLOUDS.items():
            of = induction.sel(deep=arm, state=state, layer=layer)
            axes.plot(
                of.previous.values.ravel(),
                of.prefix.values.ravel(),
                marker,
                color=COLOURS[concept],
                alpha=0.6 if state == "trained" else 0.35,
                markersize=6,
                mew=0,
                label=name,
            )
        back, match = (induction.sel(deep=arm, state="trained", layer=each) for each in (0, 1))
        x, y = float(match.previous.max()) + 0.03, float(match.prefix.median())
        axes.text(x, y, "layer 1, trained", va="center", fontsize=11)
        x, y = min(float(back.previous.quantile(0.75)), 0.85), float(back.prefix.max()) + 0.04
        axes.text(x, y, "layer 0, trained", ha="center", va="bottom", fontsize=11)
        fresh = induction.sel(deep=arm, state="untrained")
        x, y = float(fresh.previous.mean()), float(fresh.prefix.max()) + 0.04
        axes.text(x, y, "untrained", ha="center", va="bottom", fontsize=11)
        axes.set_ylabel("prefix matching")
        axes.set_title(f"{arm} positions", loc="right", fontsize=11)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
    panels[-1].set_xlabel("weight on the token before")
    panel_letters(panels)
    return figure


@themed
def plot_cuts(induction: Dataset) -> Figure:
    """Draw the accuracy that is left when the first layer's writes are swapped on one path, an arm a panel."""
    figure, panels = subplots(induction.deep.size, 1, height=2.5, sharex=True)
    concepts = dict.fromkeys(PATHS.values(), "residual") | {
        "to keys": "attention",
        "nothing": "none",
    }
    for axes, arm in zip(np.ravel(panels), induction.deep.values, strict=True):
        groups = {
            name: induction.accuracy.sel(arm=arm).values
            if path == "whole"
            else induction.cut.sel(deep=arm, path=path).values
            for path, name in PATHS.items()
        }
        seed_strip(axes, groups, label="", concepts=concepts)
        axes.set_xlim(0, 1.03)
        axes.set_title(f"{arm} positions", loc="right", fontsize=11)
    panels[-1].set_xlabel("accuracy")
    panel_letters(panels)
    return figure


@themed
def plot_interactions(pairs: Dataset, *, allowed: float) -> Figure:
    """Draw how much of the joint effect of two heads is interaction, by depth and by where the two stand.

    Args:
        pairs: the shares.
        allowed: largest share that would count as independent.
    """
    figure, axes = subplots(height=3.0)
    words = {1: "one layer", 2: "two layers", 6: "six layers"}
    groups, concepts = {}, {}
    for depth in pairs.depth.values.tolist():
        name = f"same layer, of {words[depth]}"
        groups[name], concepts[name] = pairs.one_layer.sel(depth=depth).values, "attention"
    for depth in pairs.deep.values.tolist():
        name = f"different ones, of {words[depth]}"
        groups[name], concepts[name] = pairs.two_layers.sel(deep=depth).values, "residual"
    label = "share of the joint effect that is interaction"
    seed_strip(axes, groups, label=label, concepts=concepts, reference=allowed)
    axes.set_xlim(left=0)
    return figure
