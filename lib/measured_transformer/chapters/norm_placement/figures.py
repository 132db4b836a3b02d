"""Figures about where a norm stands: measurements in, drawings out. Arrays have their seeds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from measured_transformer.analysis.solving import Solved
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    subplots,
)
from measured_transformer.figures.solving import CONCEPTS, NAMES
from measured_transformer.figures.style import look, theme, themed

Array = Float[np.ndarray, "..."]


@themed
def success_map(
    counts: Mapping[str, Int[np.ndarray, "depth rate"]],
    depths: Sequence[int],
    rates: Sequence[float],
    seeds: int,
) -> Figure:
    """Draw how many runs solve the task, one panel an arm, with the number in each cell.

    Args:
        counts: title of a panel -> (depth, rate) number of runs that solve it.
        depths: numbers of blocks, the rows.
        rates: learning rates, the columns.
        seeds: number of runs of each cell.
    """
    rows = -(-len(counts) // 2)
    figure, axes = subplots(rows, 2, height=1.0 + 0.5 * len(depths), sharex=True, sharey=True)
    panels = np.ravel(axes)
    for panel in panels[len(counts) :]:
        panel.set_visible(False)
    for panel, (arm, found) in zip(panels, counts.items(), strict=False):
        panel.imshow(found / seeds, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        panel.grid(visible=False)
        for (i, j), number in np.ndenumerate(found):
            ink = "black" if number > 0.6 * seeds else "white"
            panel.text(j, i, f"{int(number)}", ha="center", va="center", color=ink, fontsize=10)
        panel.set_title(arm, loc="left")
        panel.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        panel.set_yticks(range(len(depths)), [str(depth) for depth in depths])
        panel.tick_params(length=0)
    for panel in np.atleast_2d(axes)[:, 0]:
        panel.set_ylabel("blocks")
    for panel in np.atleast_2d(axes)[-1]:
        panel.set_xlabel("learning rate")
    return figure


@themed
def still_at_it(
    panels: Mapping[str, Mapping[str, Solved]], steps: int, names: Mapping[str, str] = NAMES
) -> Figure:
    """Draw the share of runs that have not solved the task yet, over the steps taken: one panel a setting.

    Args:
        panels: title -> placement -> when its runs solved the task.
        steps: how many steps runs had.
        names: placement -> name.
    """
    figure, axes = subplots(len(panels), 1, height=2.3, sharex=True)
    at = np.arange(0, steps + 1, dtype=np.float64)
    for panel, (title, arms) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for arm, found in arms.items():
            style = look(CONCEPTS[arm])
            panel.plot(
                at,
                found.still_at_it(at),
                color=style["color"],
                linestyle=style["linestyle"],
                marker=style["marker"],
                markevery=max(1, steps // 8),
                drawstyle="steps-post",
                label=names[arm],
            )
        panel.set_ylim(-0.05, 1.05)
        panel.set_ylabel("share not done")
        panel.set_title(title, loc="left")
    first, last = np.atleast_1d(axes)[[0, -1]]
    last.set_xlabel("step")
    for arm in dict.fromkeys(arm for arms in panels.values() for arm in arms):
        if names[arm] not in first.get_legend_handles_labels()[1]:
            first.plot([], [], label=names[arm], **look(CONCEPTS[arm]))  # the one legend has all
    legend_above(first, columns=3)
    return figure


@themed
def steps_by_depth(
    found: Mapping[str, Sequence[Solved]],
    depths: Sequence[int],
    names: Mapping[str, str] = NAMES,
) -> Figure:
    """Draw each run's steps over depth; runs that never got there are open marks at the top.

    Args:
        found: placement -> for each depth, when its runs solved the task.
        depths: numbers of blocks.
        names: placement -> name.
    """
    figure, axes = subplots(height=3.4)
    for place, (arm, each) in enumerate(found.items()):
        style = look(CONCEPTS[arm])
        shift = 1.06 ** (place - (len(found) - 1) / 2)
        means = []
        for depth, times in zip(depths, each, strict=True):
            spread = shift * 1.012 ** np.arange(len(times.steps))
            filled = times.observed
            axes.plot(
                depth * spread[filled],
                times.steps[filled],
                style["marker"],
                color=style["color"],
                markersize=5,
                alpha=0.7,
                mew=0,
            )
            axes.plot(
                depth * spread[~filled],
                times.steps[~filled] * 1.03,
                style["marker"],
                color=style["color"],
                mfc="none",
                markersize=6,
            )
            means.append(np.exp(np.log(times.steps).mean()))
        axes.plot(
            np.array(depths) * shift,
            means,
            color=style["color"],
            linestyle=style["linestyle"],
            label=names[arm],
        )
    _depths(axes, depths)
    axes.set_yscale("log")
    _plain(axes)
    axes.set_ylabel("steps to a loss of 0.05")
    legend_above(axes, columns=3)
    return figure


@themed
def logits_by_depth(without: Array, with_norm: Array, depths: Sequence[int]) -> Figure:
    """Draw the spread of an untrained model's logits over depth, without and with the final norm.

    Args:
        without: (seed, depth) standard deviation of the logits.
        with_norm: the same with the final norm.
        depths: numbers of blocks.
    """
    figure, axes = subplots(height=3.0)
    seed_lines(axes, np.array(depths), without, concept="none", label="without final norm")
    seed_lines(axes, np.array(depths), with_norm, concept="norm", label="with final norm")
    axes.set_yscale("log")
    _depths(axes, depths)
    _plain(axes)
    axes.set_ylabel("standard deviation\nof the logits")
    legend_above(axes, columns=2)
    return figure


@themed
def success_by_depth(
    found: Mapping[str, Sequence[Solved]],
    depths: Mapping[str, Sequence[int]],
    names: Mapping[str, str] = NAMES,
) -> Figure:
    """Draw the share of runs that solve the task (a), and how long they take (b), over depth.

    Args:
        found: placement -> for each of its depths, when its runs solved the task.
        depths: placement -> its numbers of blocks.
        names: placement -> name.
    """
    figure, axes = subplots(2, 1, height=2.4, sharex=True)
    for arm, each in found.items():
        style = look(CONCEPTS[arm])
        axes[0].plot(depths[arm], [one.share for one in each], **style, label=names[arm])
        for depth, times in zip(depths[arm], each, strict=True):
            for done, filled in ((times.observed, style["color"]), (~times.observed, "none")):
                axes[1].plot(
                    np.full(int(done.sum()), depth),
                    times.steps[done],
                    style["marker"],
                    color=style["color"],
                    mfc=filled,
                    markersize=5,
                    alpha=0.8,
                )
    every = sorted({depth for each in depths.values() for depth in each})
    for panel in axes:
        _depths(panel, every)
    axes[0].set_xlabel("")
    axes[0].set_ylim(-0.05, 1.05)
    axes[0].set_ylabel("share that\nsolves it")
    axes[1].set_yscale("log")
    _plain(axes[1])
    axes[1].set_ylabel("steps to a\nloss of 0.05")
    legend_above(axes[0], columns=3)
    panel_letters(axes)
    return figure


def _depths(axes: Axes, depths: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(depths), [str(depth) for depth in depths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("blocks")
    axes.set_xlim(depths[0] / 1.25, depths[-1] * 1.25)


def _plain(axes: Axes) -> None:
    """Round numbers on a logarithmic axis that spans little: 1, 2 and 5 times a power of ten."""
    low, high = axes.get_ylim()
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", which="minor", length=0, color=theme().ink)
