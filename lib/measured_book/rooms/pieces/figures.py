"""Figures on models without one of their pieces: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.diagrams import box, canvas, plus, stream, wire
from measured_book.figures.kit import Arms, curves, legend_over, panels, strips
from measured_book.figures.plots import subplots

ARMS: Arms = {
    "whole": ("none", "nothing"),
    "attention": ("attention", "attention"),
    "positions": ("rotary", "positions"),
    "skip": ("residual", "skip connections"),
    "norm": ("norm", "norms"),
    "ffn": ("ffn", "feed-forward"),
}
"""What a model without this piece is drawn as and called, the same in every figure of the chapter."""


@themed
def plot_five_models() -> Figure:
    """Draw one block six times: whole, and without each of the five pieces."""
    figure, found = subplots(2, 3, height=3.0)
    for axes, (arm, (_, name)) in zip(found.ravel(), ARMS.items(), strict=True):
        _block_without(axes, arm)
        title = "whole" if arm == "whole" else f"without {name}"
        axes.set_title(title, fontsize=11, pad=2)
    return figure


def _block_without(axes: Axes, piece: str) -> None:
    """One pre-norm block above its embedding; what is left out is a dashed, empty outline."""
    canvas(axes, width=4.9, height=7.4)
    x, side = 0.75, 3.1
    _boxed(axes, (side, 0.4), "positions", gone=piece == "positions")
    stream(axes, (x, 0.0), (x, 1.0), arrow=False)
    if piece != "positions":
        wire(axes, [(side - 1.15, 0.4), (x + 0.3, 0.4)])
        plus(axes, (x, 0.4))
    for number, concept in enumerate(("attention", "ffn")):
        low = 0.85 + 3.0 * number
        silent = piece == concept
        if piece == "skip":
            axes.plot([x, x], [low + 0.3, low + 2.3], ":", color=COLOURS["residual"], linewidth=2)
            stream(axes, (x, low - 0.1), (x, low + 0.25), arrow=False)
            stream(axes, (x, low + 2.38), (x, low + 3.1), arrow=False)
        else:
            stream(axes, (x, low - 0.1), (x, low + 3.1), arrow=False)
            if not silent:
                plus(axes, (x, low + 2.45))
        if number == 1:
            stream(axes, (x, low + 2.6), (x, low + 3.5))
        end = x + (0.27 if piece != "skip" else 0.1)
        if not silent:
            wire(axes, [(x, low + 0.2), (side, low + 0.2), (side, low + 0.55)])
            wire(axes, [(side, low + 1.0), (side, low + 1.28)], arrow=False)
            wire(axes, [(side, low + 2.0), (side, low + 2.45), (end, low + 2.45)])
        _boxed(axes, (side, low + 0.8), "norm", gone=piece == "norm" or silent)
        _boxed(axes, (side, low + 1.65), concept, gone=silent)
    axes.set_ylim(-0.1, 7.4)


def _boxed(axes: Axes, centre: tuple[float, float], concept: str, *, gone: bool) -> None:
    if concept == "positions":
        colour, height = COLOURS[ARMS["positions"][0]], 0.6
    else:
        colour, height = COLOURS[concept], 0.5 if concept == "norm" else 0.74
    if not gone and concept != "positions":
        box(axes, centre, concept, width=3.3)
        return
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - 1.15, centre[1] - height / 2),
            2.3,
            height,
            boxstyle="round,pad=0,rounding_size=0.15",
            facecolor="none" if gone else theme().paper,
            edgecolor=colour,
            linewidth=1.2 if gone else 2.0,
            linestyle=":" if gone else "-",
            zorder=3,
        )
    )
    if not gone:
        axes.text(*centre, concept, ha="center", va="center", fontsize=11, zorder=4)


@themed
def plot_ranking(
    puzzles: Dataset, text: Dataset, floors: Mapping[str, Mapping[str, float]]
) -> Figure:
    """Draw one panel for each task, one row for each model, the cheapest on top: a dot for every seed's loss.

    Args:
        puzzles, text: the results of these names.
        floors: task -> name of a reference -> loss; at most two, drawn dashed and dotted.
    """
    figure, found = panels(3, 1, height=0.8 + 0.31 * len(ARMS))
    for axes, (task, result) in zip(found, _by_task(puzzles, text).items(), strict=True):
        strips(axes, result.loss, ARMS, over="arm", label="", lowest_first=True)
        for (name, loss), style in zip(floors[task].items(), ("--", ":"), strict=False):
            axes.axvline(loss, color=theme().ink, linestyle=style, linewidth=1.2, label=name)
        axes.set_title(task, loc="right", fontsize=12)
        axes.legend(loc="best", fontsize=10, handlelength=1.6)
    found[-1].set_xlabel("loss in nats; the rows say what is left out")
    return figure


def _by_task(puzzles: Dataset, text: Dataset) -> dict[str, Dataset]:
    found = {task: puzzles.sel(task=task) for task in ("reversal", "recall")}
    return {**found, "text": text.sel(task="text")}


@themed
def plot_learning_curves(puzzles: Dataset, text: Dataset, steps: Mapping[str, int]) -> Figure:
    """Draw the training loss over the steps, every seed faint, one panel for each task.

    The first points, where losses can be very large, may lie above the panel.

    Args:
        puzzles, text: the results of these names.
        steps: of a training run, by task.
    """
    figure, found = panels(3, 1, height=2.6, y="loss in nats")
    for axes, (task, result) in zip(found, _by_task(puzzles, text).items(), strict=True):
        stretches = result.sizes["stretch"]
        at = steps[task] / stretches * (np.arange(stretches) + 0.5)
        curves(axes, result.curve, "stretch", ARMS, over="arm", x=at, marker_every=6)
        lowest, highest = float(result.curve.min()), float(result.curve.isel(stretch=2).max())
        axes.set_ylim(lowest - 0.06 * (highest - lowest), 1.02 * highest)
        axes.set_title(task, loc="right", fontsize=12)
    found[-1].set_xlabel("training step")
    legend_over(figure, found[0])
    return figure


LINEAR = 0.1
"""Below this many nats the axes of `plot_needed` are linear, above it logarithmic."""
TASK_MARKERS: Mapping[str, str] = {"reversal": "o", "recall": "s", "text": "^"}


@themed
def plot_needed(puzzles: Dataset, text: Dataset) -> Figure:
    """Draw what it costs to lose a piece after training over what it costs never to have had it.

    A faint mark for each seed and a strong one for the mean, in the piece's colour, with the task's shape.

    Args:
        puzzles, text: the results of these names.
    """
    figure, axes = subplots(height=5.4)
    for task, result in _by_task(puzzles, text).items():
        for piece in result.piece.values.tolist():
            built = (result.loss.sel(arm=piece) - result.loss.sel(arm="whole")).values
            taken = result.taken.sel(piece=piece).values
            colour, kind = COLOURS[ARMS[piece][0]], TASK_MARKERS[task]
            axes.plot(built, taken, kind, color=colour, alpha=0.35, markersize=4, mew=0)
            means = (built.mean(), taken.mean())
            axes.plot(*means, kind, color=colour, markersize=10, mec=theme().paper)
    top = 20.0
    axes.plot([0, top], [0, top], color=theme().ink, linestyle="--", linewidth=1)
    for scale in (axes.set_xscale, axes.set_yscale):
        scale("symlog", linthresh=LINEAR)
    ticks = (0, 0.1, 1, 10)
    axes.set_xticks((-0.1, *ticks), [f"{tick:g}" for tick in (-0.1, *ticks)])
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(-0.35, top)
    axes.set_ylim(-0.03, top)
    axes.axvline(0, color=theme().ink, linewidth=1)
    axes.set_xlabel("built without it: rise of the loss in nats")
    axes.set_ylabel("removed after training: rise in nats")
    _keys(figure)
    return figure


def _keys(figure: Figure) -> None:
    """Colours stand for pieces, shapes for tasks."""
    pieces = [
        Line2D([], [], marker="o", linestyle="", color=COLOURS[concept], label=name)
        for arm, (concept, name) in ARMS.items()
        if arm != "whole"
    ]
    tasks = [
        Line2D([], [], marker=marker, linestyle="", color=theme().ink, label=task)
        for task, marker in TASK_MARKERS.items()
    ]
    figure.legend(handles=[*pieces, *tasks], loc="outside upper center", ncols=4, fontsize=10)
