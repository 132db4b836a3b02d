"""Figures about heads: attention as a sum, the two circuits of a head, heads that build on one another.

Matrices that are drawn are real ones, computed by the chapter. Attention is orange, the stream blue; one head
is told from another by its number and by how strong its colour is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import ArrayLike

from measured_transformer.figures.diagrams import canvas
from measured_transformer.figures.plots import (
    heat_map,
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed, tint

Array = Float[np.ndarray, "..."]
_STRENGTHS = (0.28, 0.5, 0.75)
_HEADS = ("attention", "residual", "ffn", "norm", "learned")
"""Looks of the arms with one, two, four, eight and sixteen heads."""


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
def plot_induction_circuits(
    noted: Array,
    matched: Array,
    product: Array,
    *,
    parts: Mapping[str, tuple[int, int]],
    tokens: Sequence[str],
) -> Figure:
    """Draw an earlier head's OV form, a later head's QK form, and what a token then asks for.

    Args:
        noted: the earlier head's OV form, (read, written), over the entries of the stream.
        matched: the later head's QK form, (query, key).
        product: what the later head's token scores with the token that the earlier head read: (own, read).
        parts: name of each part of the stream -> its first entry and the one behind its last.
        tokens: names of the tokens.
    """
    figure, axes = subplots(3, 1, height=3.0, height_ratios=(3, 3, 2.2))
    for each, form, label, columns, rows in (
        (axes[0], noted, "carried", "written to", "read from"),
        (axes[1], matched, "score", "key", "query"),
    ):
        bar = heat_map(each, form, label=label, x_label=columns, y_label=rows, diverging=True)
        bar.ax.tick_params(labelsize=10)
        _parts(each, parts)
    heat_map(
        axes[2],
        product,
        label="score",
        x_label="token in front of the place that is looked at",
        y_label="own token",
        diverging=True,
    )
    axes[2].set_xticks(range(len(tokens)), tokens)
    axes[2].set_yticks(range(len(tokens)), tokens)
    panel_letters(axes)
    return figure


def _parts(axes: Axes, parts: Mapping[str, tuple[int, int]]) -> None:
    """Name the parts of the stream along both axes and draw lines between them."""
    middles = [(low + high - 1) / 2 for low, high in parts.values()]
    axes.set_xticks(middles, list(parts))
    axes.set_yticks(middles, list(parts))
    axes.tick_params(length=0)
    for low, _ in list(parts.values())[1:]:
        axes.axvline(low - 0.5, color=theme().faint, linewidth=1.2)
        axes.axhline(low - 0.5, color=theme().faint, linewidth=1.2)


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
def plot_learning(
    steps: ArrayLike, curves: Mapping[str, Array], *, judged: int, chance: float
) -> Figure:
    """Draw accuracy against training steps for models with several numbers of heads.

    Args:
        steps: when the models were scored.
        curves: name -> (seed, evaluation), in the order of the number of heads; they may end early.
        judged: the step at which a claim is judged.
        chance: accuracy of guessing.
    """
    figure, axes = subplots(height=3.7)
    for concept, (name, values) in zip(_HEADS, curves.items(), strict=False):
        seed_lines(axes, np.asarray(steps)[: values.shape[1]], values, concept=concept, label=name)
    axes.axvline(judged, color=theme().ink, linestyle="--", linewidth=1)
    axes.axhline(chance, color=theme().ink, linestyle=":", linewidth=1)
    axes.set_xlabel("training steps")
    axes.set_ylabel("accuracy")
    axes.set_ylim(0, 1.03)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_head_counts(counts: Sequence[int], losses: Mapping[str, Array]) -> Figure:
    """Draw the loss against the number of heads, a panel a task.

    Args:
        counts: numbers of heads.
        losses: name of the task -> (seed, count), in nats.
    """
    figure, axes = subplots(len(losses), 1, height=2.5, sharex=True)
    for each, (name, values) in zip(np.ravel(axes), losses.items(), strict=True):
        seed_lines(each, np.array(counts), values, concept="attention", label="", marker_every=1)
        each.set_xscale("log", base=2)
        each.set_xticks(list(counts), [str(count) for count in counts])
        each.set_ylabel("loss (nats)")
        each.set_title(name, loc="right", fontsize=11)
    axes[-1].set_xlabel("heads, at fixed width")
    panel_letters(axes)
    return figure


@themed
def plot_interactions(
    shares: Mapping[str, Array], fits: Array, effects: Array, *, baseline: float, allowed: float
) -> Figure:
    """Draw how much of joint effects is interaction, and interaction against how well weights fit.

    Args:
        shares: name of the kind of pair -> one share a seed.
        fits: for each pair in different layers the largest of its composition scores.
        effects: for each of these pairs the size of its interaction, in nats.
        baseline: composition of directions without relation.
        allowed: largest share that would count as independent.
    """
    figure, (above, below) = subplots(2, 1, height=2.6, height_ratios=(2, 3))
    concepts = dict(zip(shares, ("attention", "residual"), strict=False))
    seed_strip(
        above,
        shares,
        label="share of the joint effect that is interaction",
        concepts=concepts,
        reference=allowed,
    )
    style = look("residual")
    below.plot(fits, effects, "o", color=style["color"], alpha=0.55, markersize=5, mew=0)
    below.axvline(baseline, color=theme().ink, linestyle="--", linewidth=1)
    below.set_xlabel("largest composition score of the pair")
    below.set_ylabel("|interaction| (nats)")
    panel_letters((above, below))
    return figure
