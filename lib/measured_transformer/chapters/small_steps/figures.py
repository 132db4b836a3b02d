"""Figures about factors on what branches write at first: measurements in, drawings out. Seeds come first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.small_steps.measure import Descent
from measured_transformer.figures.plots import panel_letters, subplots
from measured_transformer.figures.solving import CONCEPTS, NAMES
from measured_transformer.figures.style import COLOURS, look, theme, themed

Array = Float[np.ndarray, "..."]
Lines = Mapping[float, Array]
BRANCH_FACTORS = (0.1, 0.3, 1.0, 2.0, 10.0)
"""The factors that have a look of their own."""
_MARKS = (("v", "-"), ("o", "--"), ("s", "-."), ("^", ":"), ("D", (0, (5, 1, 1, 1))))


@themed
def plot_turns_by_block(
    panels: Mapping[str, Lines], limit: Array, *, unit: str = "block"
) -> Figure:
    """Draw by how many degrees each block of an untrained model turns the stream, a panel a placement.

    Args:
        panels: key of `NAMES` -> factor -> (seed, block) angles in degrees.
        limit: (block) the angles that long writes at right angles come to, dashed in the first panel.
        unit: what is counted, where it is not blocks.

    Raises:
        ValueError: when a factor is none of `BRANCH_FACTORS`.
    """
    figure, axes = subplots(len(panels), 1, height=2.6, sharex=True, sharey=True)
    for panel, (where, lines) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for factor, style in _styles(lines).items():
            values = lines[factor]
            blocks = np.arange(1, values.shape[1] + 1)
            for row in values:
                panel.plot(blocks, row, color=style["color"], alpha=0.3, linewidth=0.8)
            panel.plot(
                blocks,
                values.mean(0),
                **style,
                markevery=max(1, len(blocks) // 8),
                label=f"{factor:g}",
            )
        panel.set_ylabel(f"{NAMES[where]}:\nturned, degrees")
    first = np.atleast_1d(axes)[0]
    first.plot(np.arange(1, len(limit) + 1), limit, color=theme().ink, linestyle="--", linewidth=1)
    first.set_yscale("log")
    first.set_ylim(3, 130)
    _plain(first)
    np.atleast_1d(axes)[-1].set_xlabel(unit)
    np.atleast_1d(axes)[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, first)
    panel_letters(np.atleast_1d(axes))
    return figure


@themed
def plot_steps_by_factor(found: Mapping[float, Solved]) -> Figure:
    """Draw one row a factor: the steps that each run took, open marks for runs that were stopped before.

    Args:
        found: factor -> when its runs solved the task.

    Raises:
        ValueError: when a factor is none of `BRANCH_FACTORS`.
    """
    figure, axes = subplots(height=0.8 + 0.45 * len(found))
    for row, (factor, style) in enumerate(_styles(found).items()):
        times = found[factor]
        _marks(axes, times.steps, row + _spread(len(times.steps)), times.observed, style)
    axes.set_yticks(range(len(found)), [f"{factor:g}" for factor in sorted(found)])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylabel("factor")
    axes.set_xlabel("steps to a loss of 0.05")
    return figure


@themed
def plot_tuning_losses(
    panels: Mapping[int, Mapping[float, Mapping[float, Sequence[float]]]], level: float
) -> Figure:
    """Draw the loss at the end of each tuning run over its learning rate, a panel a depth, a line a factor.

    Args:
        panels: number of blocks -> factor -> learning rate -> loss of each seed.
        level: the loss to mark.

    Raises:
        ValueError: when a factor is none of `BRANCH_FACTORS`.
    """
    figure, axes = subplots(len(panels), 1, height=2.5, sharex=True, sharey=True)
    for panel, (depth, lines) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for factor, style in _styles(lines).items():
            rates = sorted(lines[factor])
            losses = np.array([lines[factor][rate] for rate in rates]).T
            for row in losses:
                panel.plot(rates, row, color=style["color"], alpha=0.3, linewidth=0.8)
            middle = np.exp(np.log(losses).mean(0))
            panel.plot(rates, middle, **style, label=f"{factor:g}")
        panel.axhline(level, color=theme().ink, linestyle="--", linewidth=1)
        panel.set_ylabel(f"{depth} blocks:\nloss, nats")
        panel.set_xscale("log")
        panel.set_yscale("log")
    last = np.atleast_1d(axes)[-1]
    last.set_xticks(rates, [f"{rate:g}" for rate in rates])
    last.xaxis.set_minor_locator(NullLocator())
    last.set_xlabel("learning rate")
    _legend(figure, np.atleast_1d(axes)[0])
    panel_letters(np.atleast_1d(axes))
    return figure


@themed
def plot_shifts_by_depth(panels: Mapping[str, Lines], depths: Sequence[int]) -> Figure:
    """Draw how far the first step of a training moves the logits, over depth, a panel a place of the norm.

    A line ends where a value is not finite.

    Args:
        panels: key of `NAMES` -> factor -> (seed, depth) change of the logits; the first has all the factors.
        depths: numbers of blocks.

    Raises:
        ValueError: when a factor is none of `BRANCH_FACTORS`.
    """
    figure, axes = subplots(len(panels), 1, height=2.4, sharex=True)
    styles = _styles({factor: None for lines in panels.values() for factor in lines})
    for panel, (where, lines) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for factor, style in styles.items():
            if factor not in lines:
                continue
            values = np.where(np.isfinite(lines[factor]), lines[factor], np.nan)
            for row in values:
                panel.plot(depths, row, color=style["color"], alpha=0.3, linewidth=0.8)
            panel.plot(depths, np.exp(np.log(values).mean(0)), **style, label=f"{factor:g}")
        panel.set_yscale("log")
        _plain(panel)
        panel.set_ylabel(f"{NAMES[where]}:\nchange of logits")
    last = np.atleast_1d(axes)[-1]
    last.set_xscale("log")
    last.set_xticks(depths, [str(depth) for depth in depths])
    last.xaxis.set_minor_locator(NullLocator())
    last.set_xlabel("blocks")
    _legend(figure, np.atleast_1d(axes)[0])
    panel_letters(np.atleast_1d(axes))
    return figure


@themed
def plot_largest_depths(
    found: Mapping[str, Mapping[float, Descent]], depths: Sequence[int]
) -> Figure:
    """Draw one row a model: the largest depth that each seed solved; open marks where no tried one was.

    Args:
        found: key of `NAMES` -> factor -> what `from_the_top` found.
        depths: numbers of blocks, for the axis.
    """
    rows = [(where, factor) for where, lines in found.items() for factor in lines]
    figure, axes = subplots(height=0.9 + 0.38 * len(rows))
    for row, (where, factor) in enumerate(rows):
        descent = found[where][factor]
        largest = descent.largest
        done = largest >= min(descent.runs)
        _marks(axes, largest, row + _spread(len(largest)), done, look(CONCEPTS[where]))
    axes.set_xscale("log")
    axes.set_xlim(min(depths) / 2.6, max(depths) * 1.25)
    axes.xaxis.set_major_locator(FixedLocator([min(depths) / 2, *depths]))
    axes.set_xticklabels(["none", *(str(depth) for depth in depths)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(rows)), [f"{NAMES[where]}, {factor:g}" for where, factor in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("largest number of blocks that learns it")
    return figure


def _styles(lines: Mapping[float, Any]) -> dict[float, dict[str, Any]]:
    """The look of each factor, the same on all figures: blue for the smallest, through grey, to orange."""
    if unknown := [factor for factor in lines if factor not in BRANCH_FACTORS]:
        raise ValueError(f"expected factors of {BRANCH_FACTORS}, got {unknown}")
    ends = (COLOURS["residual"], COLOURS["random"], COLOURS["attention"])
    shades = LinearSegmentedColormap.from_list("measured-factors", ends, N=len(BRANCH_FACTORS))
    looks = {
        factor: {"color": shades(place), "marker": marker, "linestyle": dash, "markersize": 5}
        for place, (factor, (marker, dash)) in enumerate(zip(BRANCH_FACTORS, _MARKS, strict=True))
    }
    return {factor: looks[factor] for factor in sorted(lines)}


def _marks(
    axes: Axes, x: Array, y: Array, done: Bool[np.ndarray, "run"], style: Mapping[str, Any]
) -> None:
    """A mark for each run, open where it did not get there."""
    for chosen, fill in ((done, style["color"]), (~done, "none")):
        axes.plot(
            x[chosen],
            y[chosen],
            linestyle="none",
            marker=style["marker"],
            color=style["color"],
            mfc=fill,
            markersize=6,
        )


def _plain(axes: Axes) -> None:
    """Round numbers on a logarithmic axis that spans little; one that spans much keeps its powers of ten."""
    low, high = axes.get_ylim()
    if high < 100 * low:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())


def _spread(runs: int) -> Array:
    return 0.14 * (np.arange(runs) - (runs - 1) / 2)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        title="what branches write at first, times",
        loc="outside upper center",
        ncols=len(names),
        columnspacing=1.2,
    )
