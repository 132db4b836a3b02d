"""Figures about heads and the grammar: sentences with their arcs, distances, scores.

Arrays have their seeds first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from numpy.typing import ArrayLike

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed

CONCEPTS = {"agreement": "residual", "reference": "attention", "adjective": "ffn"}
"""The colour of each relation, by the concept that lends it."""
NAMES = {
    "agreement": "verb to subject",
    "reference": "pronoun to referent",
    "adjective": "adjective to noun",
}
"""What a reader sees of each relation."""


@themed
def plot_sentence_arcs(
    words: Sequence[str], arcs: Mapping[str, Sequence[tuple[int, int]]]
) -> Figure:
    """Draw a sentence from top to bottom, with an arrow for each arc: back on the left, ahead on the right.

    Args:
        words: of the sentence.
        arcs: relation -> pairs of start and end.
    """
    figure, axes = subplots(height=0.36 * len(words) + 0.7)
    for place, word in enumerate(words):
        axes.text(0, place, word, ha="center", va="center", fontsize=13)
    for relation, pairs in arcs.items():
        style = look(CONCEPTS[relation])
        for start, end in pairs:
            side = -1 if end < start else 1
            bend = 0.42 if abs(end - start) > 1 else 0.75
            axes.add_patch(
                FancyArrowPatch(
                    (side * 0.34, start), (side * 0.34, end + 0.12 * np.sign(start - end)),
                    connectionstyle=f"arc3,rad={bend * -1}", arrowstyle="-|>", mutation_scale=13,
                    color=style["color"], linestyle=style["linestyle"], linewidth=1.8,
                )
            )  # fmt: skip
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(len(words) - 0.4, -0.6)
    axes.axis("off")
    shown = [
        Line2D([], [], color=COLOURS[CONCEPTS[r]], linestyle=look(CONCEPTS[r])["linestyle"], label=NAMES[r])
        for r in arcs
    ]  # fmt: skip
    axes.legend(handles=shown, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return figure


@themed
def plot_distances(found: Mapping[str, ArrayLike]) -> Figure:
    """Draw how far the arcs of each relation reach, a panel a relation; the most frequent distance is full.

    Args:
        found: relation -> distance of each arc, end less start.
    """
    figure, panels = subplots(len(found), height=1.75, sharex=True, sharey=True)
    for axes, (relation, values) in zip(np.ravel(panels), found.items(), strict=True):
        values = np.asarray(values)
        counts = Counter(values.tolist())
        top = max(counts, key=lambda each: counts[each])
        for distance, number in counts.items():
            axes.bar(
                distance, number / len(values), width=0.75, linewidth=1.4,
                color=COLOURS[CONCEPTS[relation]], alpha=1 if distance == top else 0.45,
            )  # fmt: skip
        share = counts[top] / len(values)
        axes.text(top, share + 0.03, f"{share:.0%}", ha="center", va="bottom", fontsize=11)
        axes.axvline(0, color=theme().ink, linewidth=1, linestyle=":")
        axes.set_title(NAMES[relation], loc="right")
    np.ravel(panels)[0].set_ylim(0, 1.02)
    np.ravel(panels)[-1].set_xlabel("words from start to end of the arc (negative: back)")
    np.ravel(panels)[len(found) // 2].set_ylabel("share of the arcs")
    panel_letters(np.ravel(panels))
    return figure


@themed
def plot_strips(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    label: str,
    concepts: Sequence[str] = ("attention", "random", "residual"),
    reference: float | None = None,
) -> Figure:
    """Draw values between 0 and 1, a panel a name and a row a group, with a dot a seed.

    Args:
        panels: name -> group -> one value a seed.
        label: of the axis.
        concepts: of the groups of a panel, in their order.
        reference: where a dashed line stands.
    """
    rows = [len(groups) for groups in panels.values()]
    figure, drawn = subplots(
        len(panels), height=(0.46 * sum(rows) + 0.55 * len(panels) + 0.5) / len(panels), sharex=True,
        gridspec_kw={"height_ratios": rows},
    )  # fmt: skip
    for axes, (name, groups) in zip(np.ravel(drawn), panels.items(), strict=True):
        colours = dict(zip(groups, concepts, strict=False))
        last = axes is np.ravel(drawn)[-1]
        seed_strip(axes, groups, label=label if last else "", concepts=colours, reference=reference)
        axes.set_title(name, loc="right")
        axes.set_xlim(-0.03, 1.03)
    if len(panels) > 1:
        panel_letters(np.ravel(drawn))
    return figure


@themed
def plot_removal(
    removed: Sequence[int], curves: Mapping[str, Float[np.ndarray, "seed removed"]]
) -> Figure:
    """Draw how often the number of a verb stays right as heads are taken away, in two or more orders.

    Args:
        removed: how many heads are gone.
        curves: name of the order -> share, (seed, number of heads).
    """
    figure, axes = subplots(height=3.4)
    axes.axhline(0.5, color=theme().ink, linewidth=1, linestyle=":")
    for (name, rows), concept in zip(
        curves.items(), ("attention", "residual", "ffn"), strict=False
    ):
        seed_lines(axes, np.array(removed), rows, concept=concept, label=name, marker_every=1)
    axes.set_xlabel("heads taken away, of sixteen")
    axes.set_ylabel("verbs with the right number")
    axes.set_ylim(0.4, 1.03)
    axes.set_xticks(removed)
    legend_above(axes, columns=2)
    return figure
