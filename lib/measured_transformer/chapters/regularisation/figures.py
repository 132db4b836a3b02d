"""Figures of the chapter on dropout and label smoothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy import ndarray
from numpy.typing import ArrayLike

from measured_transformer.chapters.regularisation.measure import Reliability
from measured_transformer.figures.diagrams import box, canvas, plus, stream, wire
from measured_transformer.figures.plots import (
    legend_above,
    mean_and_bar,
    panel_letters,
    seed_lines,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed, tint

STRENGTHS = ("none", "residual", "attention", "ffn")
"""Concepts for settings of rising strength, the first one for none."""


@themed
def plot_by_hand(
    x: Float[ndarray, "entry"], outputs: Float[ndarray, "mask entry"], mean: Float[ndarray, "entry"]
) -> Figure:
    """Draw eight numbers, what one mask leaves of them, and all masks with their mean.

    Args:
        x: the numbers.
        outputs: what dropout gives for each mask; the first row is shown on its own.
        mean: exact mean over the masks.
    """
    figure, (above, below) = subplots(2, 1, height=2.3, sharex=True)
    places = np.arange(1, len(x) + 1)
    above.bar(places - 0.2, x, width=0.38, color=tint("none", 0.55), label="before")
    above.bar(places + 0.2, outputs[0], width=0.38, color=COLOURS["residual"], label="one mask")
    for place, after in zip(places, outputs[0], strict=True):
        if after == 0:
            above.text(place + 0.2, 0, "x", ha="center", va="center", fontsize=14)
    for row in outputs:
        below.plot(places, row, "_", color=COLOURS["residual"], markersize=16, alpha=0.5)
    below.plot(places, mean, "D", color=COLOURS["attention"], label="mean over all masks")
    below.plot([], [], "_", color=COLOURS["residual"], markersize=12, label="what a mask gives")
    for axes in (above, below):
        axes.axhline(0, color=theme().ink, linewidth=1)
        axes.set_ylabel("value")
        legend_above(axes, columns=2)
    below.set_xlabel("entry")
    below.set_xticks(places)
    panel_letters((above, below))
    return figure


@themed
def plot_places() -> Figure:
    """Draw the embedding and one layer of the original Transformer with every place that dropout acts in."""
    figure, axes = subplots(height=7.6)
    canvas(axes, width=9.2, height=10.9)
    x, side = 1.9, 5.2
    _flat(axes, (x, 0.5), "embedding + positions")
    stream(axes, (x, 0.85), (x, 10.6))
    _drop(axes, (x, 1.5), "1", "residual")
    heights = (2.2, 6.2)
    for low, concept, first, second in zip(
        heights, ("attention", "ffn"), ("2", "4"), ("3", "5"), strict=True
    ):
        wire(axes, [(x, low), (side, low), (side, low + 0.42)])
        box(axes, (side, low + 0.85), concept)
        wire(axes, [(side, low + 1.26), (side, low + 1.56)], arrow=False)
        _drop(axes, (side, low + 1.8), second, "attention" if concept == "attention" else "ffn")
        wire(axes, [(side, low + 2.04), (side, low + 2.5), (x + 0.27, low + 2.5)])
        _drop(axes, (side + 1.5, low + 0.85), first, concept)
        plus(axes, (x, low + 2.5))
        box(axes, (x, low + 3.2), "norm", width=1.3)
    notes = {
        (x + 0.45, 1.5): "the paper, not in the layer",
        (side + 1.85, heights[0] + 0.85): "weights",
        (side + 0.4, heights[0] + 1.8): "output",
        (side + 1.85, heights[1] + 0.85): "neurons",
        (side + 0.4, heights[1] + 1.8): "output",
    }
    for (across, up), text in notes.items():
        axes.text(across, up, text, va="center", fontsize=11)
    return figure


def _flat(axes: Axes, centre: tuple[float, float], text: str) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - 1.75, centre[1] - 0.35),
            3.5,
            0.7,
            boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=tint("residual"),
            edgecolor=COLOURS["residual"],
            linewidth=2,
            zorder=3,
        )
    )
    axes.text(*centre, text, ha="center", va="center", fontsize=12, zorder=4)


def _drop(axes: Axes, centre: tuple[float, float], number: str, concept: str) -> None:
    axes.plot(
        *centre,
        "o",
        markersize=20,
        color=theme().paper,
        mec=COLOURS[concept],
        mew=2,
        zorder=6,
    )
    axes.text(*centre, number, ha="center", va="center", fontsize=12, fontweight="bold", zorder=7)


@themed
def plot_noise(
    before: Float[ndarray, "seed state"], behind: Float[ndarray, "seed state"], rate: float
) -> Figure:
    """Draw the share of noise on the stream over the sublayers, before and after training apart.

    Args:
        before, behind: with dropout before the addition and behind it.
        rate: of dropout, for the growth that the skip path alone would give.
    """
    figure, axes = subplots(height=3.4)
    at = np.arange(before.shape[1])
    seed_lines(axes, at, behind, concept="attention", label="dropped behind the addition")
    seed_lines(axes, at, before, concept="residual", label="dropped before it")
    axes.plot(
        at,
        (1 - rate) ** -(at + 1.0) - 1,
        color=theme().ink,
        linewidth=1.2,
        linestyle=":",
        label="stream alone, by the formula",
    )
    axes.set_xlabel("sublayers passed")
    axes.set_ylabel("variance over masks /\nsquare of the mean")
    axes.set_ylim(bottom=0)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_curves(
    steps: ArrayLike,
    panels: Mapping[str, Mapping[str, Float[ndarray, "seed evaluation"]]],
    training: Mapping[str, Float[ndarray, "seed evaluation"]],
    floor: float,
) -> Figure:
    """Draw validation loss over training, a panel for each kind of training data.

    Args:
        steps: when the model was scored.
        panels: kind of data -> rate of dropout -> losses.
        training: kind of data -> training loss without dropout at the same steps.
        floor: smallest possible expected loss.
    """
    figure, all_axes = subplots(len(panels), 1, height=2.4, sharex=True)
    rows = np.atleast_1d(all_axes)
    for axes, (kind, arms) in zip(rows, panels.items(), strict=True):
        for concept, (name, losses) in zip(STRENGTHS, arms.items(), strict=False):
            seed_lines(axes, steps, losses, concept=concept, label=name)
        fitted = training[kind].mean(0)
        axes.plot(steps, fitted, color=theme().ink, linewidth=1.2, label="training loss, none")
        axes.axhline(floor, color=theme().ink, linestyle=":", linewidth=1.2)
        axes.set_ylabel(f"loss (nats)\n{kind}")
        axes.set_ylim(bottom=0)
    legend_above(rows[0], columns=2)
    rows[-1].set_xlabel("step")
    panel_letters(rows)
    return figure


@themed
def plot_gains(table: Mapping[str, Mapping[str, Float[ndarray, "seed"]]], *, label: str) -> Figure:
    """Draw what each rate changed, seed by seed, a group of rows for each kind of training data.

    Args:
        table: kind of data -> rate -> difference to none, one value a seed.
        label: what the differences are, with their unit.
    """
    count = sum(len(arms) for arms in table.values())
    figure, axes = subplots(height=0.8 + 0.42 * count)
    axes.axvline(0, color=theme().ink, linestyle="--", linewidth=1)
    ticks: list[str] = []
    for kind, arms in table.items():
        for concept, (name, values) in zip(STRENGTHS[1:], arms.items(), strict=False):
            row = len(ticks)
            ticks.append(f"{kind}, {name}")
            mean, low, high = mean_and_bar(values)
            spread = np.linspace(-0.18, 0.18, len(values))
            marker = look(concept)["marker"]
            axes.plot(values, row + spread, "o", color=COLOURS[concept], alpha=0.55, markersize=5)
            axes.plot([low, high], [row, row], color=theme().ink, linewidth=1.6, zorder=3)
            axes.plot(mean, row, marker, color=COLOURS[concept], mec=theme().ink, ms=9, zorder=4)
    axes.set_yticks(range(count), ticks)
    axes.set_ylim(count - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)
    return figure


@themed
def plot_targets(names: Sequence[str], rows: Mapping[str, Float[ndarray, "token"]]) -> Figure:
    """Draw what a loss asks for: one bar a token, a group of bars for each kind of target."""
    figure, axes = subplots(height=3.0)
    at, width = np.arange(len(names)), 0.8 / len(rows)
    for i, (concept, (label, chances)) in enumerate(zip(STRENGTHS, rows.items(), strict=False)):
        shift = (i - (len(rows) - 1) / 2) * width
        axes.bar(at + shift, chances, width, color=COLOURS[concept], label=label)
    axes.set_xticks(at, names)
    axes.set_xlabel("token")
    axes.set_ylabel("probability asked for")
    axes.grid(visible=False, axis="x")
    legend_above(axes, columns=len(rows))
    return figure


@themed
def plot_metrics(
    strengths: Sequence[float], found: Mapping[str, Float[ndarray, "seed strength"]]
) -> Figure:
    """Draw each metric against the share of smoothing, a panel a metric; an arrow says which way is better.

    Args:
        strengths: shares of smoothing.
        found: metric and the direction that is better, such as 'accuracy ↑' -> values.
    """
    figure, all_axes = subplots((len(found) + 1) // 2, 2, height=2.3, sharex=True, squeeze=False)
    for axes, (name, values) in zip(all_axes.flat, found.items(), strict=False):
        seed_lines(axes, strengths, values, concept="residual", label="", marker_every=1)
        axes.set_ylabel(name)
        axes.set_xticks(strengths)
    for axes in all_axes[-1]:
        axes.set_xlabel("share of smoothing")
    panel_letters(all_axes.flat)
    return figure


@themed
def plot_reliabilities(panels: Mapping[str, Mapping[str, Reliability]]) -> Figure:
    """Draw reliability diagrams: what a model promises against what it keeps.

    Args:
        panels: kind of training data -> setting -> its answers in bins. The area of a marker is the share of
            answers in its bin.
    """
    figure, all_axes = subplots(1, len(panels), height=3.7, sharey=True)
    rows = np.atleast_1d(all_axes)
    for axes, (kind, settings) in zip(rows, panels.items(), strict=True):
        axes.plot([0, 1], [0, 1], color=theme().ink, linestyle="--", linewidth=1)
        for concept, (name, found) in zip(STRENGTHS, settings.items(), strict=False):
            style, there = look(concept), found.share > 0
            axes.plot(
                found.confidence[there],
                found.accuracy[there],
                color=style["color"],
                linestyle=style["linestyle"],
                linewidth=1.4,
            )
            axes.scatter(
                found.confidence[there],
                found.accuracy[there],
                s=15 + 260 * found.share[there],
                color=style["color"],
                marker=style["marker"],
                alpha=0.8,
                label=name,
                zorder=3,
            )
        axes.set_xlim(0, 1.03)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel(f"probability promised\n{kind}")
    rows[0].set_ylabel("share of right answers")
    rows[-1].legend(loc="lower right")
    panel_letters(rows)
    return figure
