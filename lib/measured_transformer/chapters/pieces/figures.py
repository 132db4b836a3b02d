"""Figures on models without one of their pieces: measurements in, drawings out; arrays have seeds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import NullFormatter, NullLocator

from measured_transformer.figures.diagrams import box, canvas, plus, stream, wire
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed

Array = Float[np.ndarray, "..."]
CONCEPTS: Mapping[str, str] = {
    "whole": "none",
    "attention": "attention",
    "positions": "rotary",
    "skip": "residual",
    "norm": "norm",
    "ffn": "ffn",
    "both": "alibi",
}
"""What a model without this piece is drawn as, the same in every figure of the chapter."""
NAMES: Mapping[str, str] = {
    "whole": "nothing",
    "attention": "attention",
    "positions": "positions",
    "skip": "skip connections",
    "norm": "norms",
    "ffn": "feed-forward",
    "both": "skips and norms",
}
"""What is left out, in words."""


@themed
def plot_five_models() -> Figure:
    """Draw one block six times: whole, and without each of the five pieces."""
    figure, panels = subplots(2, 3, height=3.0)
    for axes, arm in zip(panels.ravel(), ("whole", *list(NAMES)[1:-1]), strict=True):
        _block_without(axes, arm)
        title = "whole" if arm == "whole" else f"without {NAMES[arm]}"
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
        colour, height = COLOURS[CONCEPTS["positions"]], 0.6
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
    losses: Mapping[str, Mapping[str, Array]], floors: Mapping[str, Mapping[str, float]]
) -> Figure:
    """Draw one panel a task, one row a model: a dot for every seed's loss, the cheapest loss on top.

    Args:
        losses: task -> what is left out -> one loss a seed.
        floors: task -> name of a reference -> loss; at most two, drawn dashed and dotted.
    """
    rows = [len(arms) for arms in losses.values()]
    figure, panels = subplots(
        len(losses), 1, height=0.75 + 0.31 * max(rows), gridspec_kw={"height_ratios": rows}
    )
    for axes, (task, arms) in zip(np.atleast_1d(panels), losses.items(), strict=True):
        order = sorted(arms, key=lambda arm: float(np.mean(arms[arm])))
        groups = {NAMES[arm]: arms[arm] for arm in order}
        concepts = {NAMES[arm]: CONCEPTS[arm] for arm in order}
        seed_strip(axes, groups, label="", concepts=concepts)
        for (name, loss), style in zip(floors[task].items(), ("--", ":"), strict=False):
            axes.axvline(loss, color=theme().ink, linestyle=style, linewidth=1.2, label=name)
        axes.set_title(task, loc="right", fontsize=12)
        axes.legend(loc="best", fontsize=10, handlelength=1.6)
    np.atleast_1d(panels)[-1].set_xlabel("loss in nats")
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_learning_curves(curves: Mapping[str, Mapping[str, Array]], *, over: int = 10) -> Figure:
    """Draw the training loss over the steps, every seed faint, a panel a task.

    The first two points, where losses can be very large, may lie above the panel.

    Args:
        curves: task -> what is left out -> (seed, step) losses.
        over: how many steps a point is averaged over.
    """
    figure, panels = subplots(len(curves), 1, height=2.5)
    for axes, (task, arms) in zip(np.atleast_1d(panels), curves.items(), strict=True):
        lowest, highest = np.inf, 0.0
        for arm, found in arms.items():
            kept = found[:, : found.shape[1] // over * over]
            means = kept.reshape(len(kept), -1, over).mean(2)
            lowest = min(lowest, float(means.min()))
            highest = max(highest, float(means[:, min(2, means.shape[1] - 1) :].max()))
            at = over * (np.arange(means.shape[1]) + 0.5)
            seed_lines(axes, at, means, concept=CONCEPTS[arm], label=NAMES[arm])
        axes.set_ylim(lowest - 0.06 * (highest - lowest), 1.02 * highest)
        axes.set_title(task, loc="right", fontsize=12)
        axes.set_ylabel("loss in nats")
    np.atleast_1d(panels)[-1].set_xlabel("training step")
    for letter, axes in zip("abc", np.atleast_1d(panels), strict=False):
        axes.set_title(f"({letter})", loc="left", fontweight="bold")
    handles, labels = np.atleast_1d(panels)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=10)
    return figure


@themed
def plot_taken_away(
    rises: Mapping[str, Mapping[str, Array]], built: Mapping[str, Mapping[str, Array]]
) -> Figure:
    """Draw what it costs to lose a sublayer after training, layer by layer, beside never having had it.

    Args:
        rises: task -> `attention` and `ffn` -> (seed, layers and all of them) rises of the loss.
        built: task -> the same -> one rise a seed, of models that were built without it.
    """
    figure, panels = subplots(len(rises), 1, height=2.3, sharex=True)
    layers = next(iter(next(iter(rises.values())).values())).shape[1] - 1
    for axes, (task, parts) in zip(np.atleast_1d(panels), rises.items(), strict=True):
        for shift, (part, found) in zip((-0.14, 0.14), parts.items(), strict=True):
            style = look(CONCEPTS[part])
            every = np.column_stack([found, built[task][part]])
            for row, at in zip(every.T, np.arange(layers + 2), strict=True):
                spread = 0.05 * (np.arange(len(row)) - (len(row) - 1) / 2)
                axes.plot(
                    at + shift + spread * 0.8,
                    row,
                    style["marker"],
                    color=style["color"],
                    alpha=0.8,
                    markersize=5,
                    mew=0,
                    label=NAMES[part] if at == 0 else "_nolegend_",
                )
                axes.plot(
                    [at + shift - 0.12, at + shift + 0.12],
                    [row.mean()] * 2,
                    color=theme().ink,
                    linewidth=1.6,
                )
        axes.axhline(0, color=theme().ink, linewidth=0.8)
        axes.axvline(layers + 0.5, color=theme().faint, linewidth=1.5)
        axes.set_title(task, loc="right", fontsize=12)
        axes.set_ylabel("rise in nats")
        axes.grid(visible=False, axis="x")
    names = [f"layer {i + 1}" for i in range(layers)]
    last = np.atleast_1d(panels)[-1]
    last.set_xticks(range(layers + 2), [*names, "all layers", "built\nwithout"])
    for letter, axes in zip("abc", np.atleast_1d(panels), strict=False):
        axes.set_title(f"({letter})", loc="left", fontweight="bold")
    handles, labels = np.atleast_1d(panels)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


@themed
def plot_writes_by_width(
    trained: tuple[Sequence[float], Array], fresh: tuple[Sequence[float], Array], expected: Array
) -> Figure:
    """Draw the ratio of the two writes over that of the parameters, before and after training.

    Args:
        trained, fresh: ratios of the parameters, of the feed-forward network over attention, one a width; and
            (seed, width) ratios of the writes.
        expected: one for each width of `fresh`: what the variance of fresh weights says, on that scale.
    """
    figure, axes = subplots(height=3.7)
    seed_lines(axes, *trained, concept="ffn", label="trained")
    seed_lines(axes, *fresh, concept="none", label="untrained")
    axes.plot(fresh[0], expected, color=theme().ink, linewidth=1.2, label="variance of the weights")
    _ratio_axes(axes, [*trained[0], *fresh[0]])
    axes.axhline(1, color=theme().ink, linestyle="--", linewidth=1)
    axes.axvline(1, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_xlabel("parameters, feed-forward over attention")
    axes.set_ylabel("length of the write,\nfeed-forward over attention")
    legend_above(axes)
    return figure


@themed
def plot_two_ways(ways: Mapping[str, tuple[Sequence[float], Array]]) -> Figure:
    """Draw the ratio of the writes over that of the parameters, by what the parameters were changed with.

    Args:
        ways: name -> ratios of the parameters, and (seed, ratio) ratios of the writes.
    """
    figure, axes = subplots(height=3.6)
    concepts = dict(zip(ways, ("ffn", "attention", "rotary"), strict=False))
    for name, (parameters, found) in ways.items():
        seed_lines(axes, parameters, found, concept=concepts[name], label=name)
    _ratio_axes(axes, [one for parameters, _ in ways.values() for one in parameters])
    axes.axhline(1, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_xlabel("parameters, feed-forward over attention")
    axes.set_ylabel("length of the write,\nfeed-forward over attention")
    legend_above(axes, columns=2)
    return figure


def _ratio_axes(axes: Axes, parameters: Sequence[float]) -> None:
    """Logarithmic axes with ticks that can be read."""
    for axis, ticks in (
        (axes.xaxis, (0.125, 0.25, 0.5, 1, 2, 4, 8)),
        (axes.yaxis, (0.25, 0.5, 1, 2)),
    ):
        axis.axes.set_xscale("log") if axis is axes.xaxis else axis.axes.set_yscale("log")
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(parameters) / 1.15, max(parameters) * 1.15)
