"""Figures of the chapter on metric traps: results in, drawings out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_strip, subplots
from measured_book.rooms.metric_traps.measure import (
    BLEU,
    MASKED,
    UNMASKED,
)

_REPORTED = {0.43: "attention", 0.55: "residual", 0.78: "attention", 0.91: "residual"}
"""The report's scores of BLEU and its accuracies, and what each is drawn as."""
_ARMS = {
    "masked": ("mask", "residual"),
    "open": ("no mask", "attention"),
    "masked, padding in the loss": ("mask,\npadding in the loss", "residual"),
    "open, padding in the loss": ("no mask,\npadding in the loss", "attention"),
    "inverted": ("mask inverted", "none"),
}
"""Arm -> its name in figures and what it is drawn as."""


def _row(axes: Axes, y: float, tokens: Sequence[str], right: Sequence[bool | None]) -> None:
    """Draw a row of cells with a token in each: right ones filled, wrong ones hatched, others empty."""
    for x, (token, good) in enumerate(zip(tokens, right, strict=True)):
        fill = "none" if good is None else COLOURS["residual" if good else "attention"]
        cell = Rectangle(
            (x + 0.06, y),
            0.88,
            0.9,
            facecolor=fill,
            edgecolor=theme().ink,
            alpha=0.85,
            linewidth=0.7,
            hatch="////" if good is False else None,
        )
        axes.add_patch(cell)
        ink = theme().ink if good is None else "white"
        axes.text(
            x + 0.5,
            y + 0.45,
            token,
            ha="center",
            va="center",
            fontsize=9,
            color=ink,
            bbox={"facecolor": fill, "edgecolor": "none", "pad": 1.2} if good is False else None,
        )


@themed
def plot_sentence() -> Figure:
    """Draw a reference of four tokens padded to twenty, an output, and what is counted on each side."""
    figure, axes = subplots(height=2.3)
    reference = ["b", "a", "d", "."] + ["·"] * 16
    output = ["b", "c", "a", "."] + ["·"] * 16
    _row(axes, 1.6, reference, [None] * 20)
    _row(axes, 0.3, output, [a == b for a, b in zip(reference, output, strict=True)])
    for y, text in ((2.55, "reference"), (1.25, "output")):
        axes.text(0, y, text, fontsize=9, va="bottom", color=theme().ink)
    for left, right, text in ((0.1, 3.9, "2 of 4"), (4.1, 19.9, "16 of 16, for nothing")):
        axes.annotate(
            "",
            (left, 0.05),
            (right, 0.05),
            arrowprops={"arrowstyle": "|-|,widthA=0.25,widthB=0.25", "color": theme().ink},
        )
        axes.text((left + right) / 2, -0.2, text, ha="center", va="top", fontsize=10)
    axes.set_xlim(-0.2, 20.2)
    axes.set_ylim(-1.0, 3.2)
    axes.axis("off")
    return figure


@themed
def plot_pairs(share: float) -> Figure:
    """Draw the report's six pairs of accuracies on the line that a share of padding gives.

    Args:
        share: of padding, as fitted to the six pairs.
    """
    figure, axes = subplots(height=3.6)
    x = np.array([0.0, 1.0])
    for f in (0.0, 0.2, 0.5):
        axes.plot(x, f + (1 - f) * x, color=theme().faint, linewidth=1.2)
        axes.text(
            0.02,
            f + 0.035,
            f"{f:.0%} padding",
            fontsize=9,
            color=COLOURS["none"],
            bbox={"facecolor": theme().paper, "edgecolor": "none", "pad": 0.8},
        )
    axes.plot(x, share + (1 - share) * x, color=theme().ink, linewidth=1.4)
    axes.text(0.02, share + 0.05, f"{share:.0%} padding", fontsize=10, va="bottom")
    for part, concept, marker in (("training", "ffn", "^"), ("validation", "attention", "o")):
        axes.plot(MASKED[part], UNMASKED[part], marker, color=COLOURS[concept], markersize=7)
        at = float(np.mean(MASKED[part])), float(np.mean(UNMASKED[part])) - 0.05
        axes.text(*at, part, color=COLOURS[concept], ha="center", va="top", fontsize=10)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("accuracy that the report prints as masked")
    axes.set_ylabel("accuracy it prints\nas unmasked")
    return figure


@themed
def plot_arms(arms: Dataset) -> Figure:
    """Draw what five kinds of trained models reach: (a) on real tokens, (b) on all positions.

    Args:
        arms: the result ``arms``.
    """
    figure, axes = subplots(2, 1, height=2.9)
    best = float(arms.best.mean())
    panels = (
        ("real", "accuracy on real tokens", best),
        ("everywhere", "accuracy on all positions", None),
    )
    for panel, (metric, label, reference) in zip(axes, panels, strict=True):
        groups = {text: arms[metric].sel(arm=name).values for name, (text, _) in _ARMS.items()}
        seed_strip(panel, groups, label=label, concepts=dict(_ARMS.values()), reference=reference)
    axes[1].set_xlim(0, 1)
    panel_letters(axes)
    return figure


@themed
def plot_ladder(ladder: Dataset) -> Figure:
    """Draw every number of one model as a row, the lowest first, a dot for each seed.

    Args:
        ladder: the result ``ladder``.
    """
    figure, axes = subplots(height=7.6)
    means = ladder.score.mean("seed")
    order = [str(name) for name in ladder.way.values[np.argsort(means.values, kind="stable")]]
    for value, concept in _REPORTED.items():
        axes.axvline(value, color=COLOURS[concept], linewidth=1, linestyle=":")
        axes.text(
            value,
            -1.1,
            f"{value:.2f}",
            ha="center",
            va="bottom",
            fontsize=9,
            color=COLOURS[concept],
        )
    for row, name in enumerate(order):
        values = ladder.score.sel(way=name).values
        concept = "attention" if name.startswith("BLEU") else "residual"
        axes.plot(
            values,
            row + 0.09 * (np.arange(values.size) % 5 - 2),
            "s" if concept == "attention" else "o",
            color=COLOURS[concept],
            alpha=0.5,
            markersize=4,
            mew=0,
        )
        axes.plot([0, values.min()], [row, row], color=theme().faint, linewidth=0.8, zorder=0)
        right = values.max() < 0.85
        axes.text(
            values.max() + 0.02 if right else values.min() - 0.02,
            row,
            f"{values.mean():.3f}" if values.mean() < 0.01 else f"{values.mean():.2f}",
            ha="left" if right else "right",
            va="center",
            fontsize=9,
            color=COLOURS[concept],
            bbox={"facecolor": theme().paper, "edgecolor": "none", "pad": 0.8},
        )
    axes.set_yticks(range(len(order)), order, fontsize=9)
    for tick in axes.get_yticklabels():
        kind = "attention" if tick.get_text().startswith("BLEU") else "residual"
        tick.set_color(COLOURS[kind])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(order) - 0.4, -1.1)
    axes.set_xlim(-0.01, 1.02)
    axes.set_xlabel("score of the same models on the same sentences")
    return figure


@themed
def plot_readings(simulated: Dataset) -> Figure:
    """Draw the BLEU of made-up outputs by reading, for two accuracies, beside the report's two scores.

    Args:
        simulated: the result ``simulated``.
    """
    figure, axes = subplots(height=4.2)
    means = simulated.bleu.mean("seed")
    names = [str(name) for name in simulated.reading.values]
    for value, text in ((BLEU["masked"][0], "masked"), (BLEU["unmasked"][0], "unmasked")):
        axes.axvline(value, color=theme().ink, linewidth=1, linestyle=":")
        axes.text(value, -0.75, f"{text}: {value}", ha="center", va="bottom", fontsize=9)
    for part, concept, marker, shift in (
        ("validation", "attention", "o", -0.13),
        ("training", "ffn", "^", 0.13),
    ):
        rows = np.arange(len(names)) + shift
        x = means.sel(accuracy=part).values
        axes.plot(x, rows, marker, color=COLOURS[concept], markersize=7, label=f"{part} accuracy")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.8)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("BLEU of the made-up outputs")
    axes.legend(
        loc="upper right",
        bbox_to_anchor=(1.0, -0.18),
        ncols=2,
        borderaxespad=0.2,
        columnspacing=1.0,
        handletextpad=0.2,
    )
    return figure


@themed
def plot_rivals(rivals: Dataset) -> Figure:
    """Draw, for each seed, the difference of BLEU between two runs and its bootstrap interval.

    (a) Runs that differ in their seed alone; (b) a run with a mask against one without.

    Args:
        rivals: the result ``rivals``.
    """
    figure, axes = subplots(2, 1, height=2.7, sharex=True)
    labels = {"seed": "another seed, nothing else", "mask": "mask against no mask"}
    for panel, (pair, text) in zip(axes, labels.items(), strict=True):
        found = rivals.sel(pair=pair).sortby("difference")
        rows = np.arange(found.sizes["seed"])
        for row, low, high, p in zip(
            rows, found.low.values, found.high.values, found.p.values, strict=True
        ):
            colour = COLOURS["attention" if p < 0.05 else "none"]
            panel.plot([low, high], [row, row], color=colour, linewidth=1.8)
        for sure, marker, concept in ((True, "o", "attention"), (False, "v", "none")):
            chosen = (found.p.values < 0.05) == sure
            panel.plot(
                found.difference.values[chosen],
                rows[chosen],
                marker,
                color=COLOURS[concept],
                markersize=6,
                label="p below 0.05" if sure else "p of 0.05 or more",
            )
        panel.axvline(0, color=theme().ink, linewidth=1, linestyle="--")
        panel.set_yticks([])
        panel.set_ylabel(text, fontsize=9)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    axes[1].set_xlabel("difference of BLEU, with its 95 % bootstrap interval")
    panel_letters(axes)
    return figure
