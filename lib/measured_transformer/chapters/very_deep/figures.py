"""Figures about very deep models: measurements in, drawings out. Seeds come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from measured_transformer.analysis.solving import Solved
from measured_transformer.figures.plots import legend_above, panel_letters, seed_lines, subplots
from measured_transformer.figures.solving import CONCEPTS, NAMES
from measured_transformer.figures.style import look, themed

Array = Float[np.ndarray, "..."]


@themed
def plot_through_the_blocks(apart: Mapping[str, Array], turn: Mapping[str, Array]) -> Figure:
    """Draw over an untrained model's blocks (a) what tells positions apart, (b) how far each turns the stream.

    Args:
        apart: placement -> (seed, state) share of the stream that tells positions apart, embedding first.
        turn: placement -> (seed, block) angle by which a block turns the stream, in degrees.
    """
    figure, axes = subplots(2, 1, height=2.5, sharex=True)
    for where, values in apart.items():
        seed_lines(
            axes[0],
            np.arange(values.shape[1]),
            values,
            concept=CONCEPTS[where],
            label=NAMES[where],
        )
    for where, values in turn.items():
        blocks = np.arange(1, values.shape[1] + 1)
        seed_lines(axes[1], blocks, values, concept=CONCEPTS[where], label="")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("share that tells\npositions apart")
    axes[1].set_ylim(bottom=0)
    axes[1].set_ylabel("turned by the\nblock, degrees")
    axes[1].set_xlabel("blocks passed")
    axes[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes[0], columns=3)
    panel_letters(axes)
    return figure


@themed
def plot_success_over_depth(
    found: Mapping[str, Sequence[Solved]], depths: Mapping[str, Sequence[int]]
) -> Figure:
    """Draw (a) the share of runs that solve the task and (b) the steps of each run, over depth.

    Placements stand side by side at each depth, and so do the runs of one. A run that was stopped before it
    got there is an open mark.

    Args:
        found: placement -> for each of its depths, when its runs solved the task.
        depths: placement -> its numbers of blocks.
    """
    figure, axes = subplots(2, 1, height=2.5, sharex=True)
    for place, (where, each) in enumerate(found.items()):
        style = look(CONCEPTS[where])
        beside = np.array(depths[where]) * 1.1 ** (place - (len(found) - 1) / 2)
        axes[0].plot(beside, [times.share for times in each], **style, label=NAMES[where])
        for middle, times in zip(beside, each, strict=True):
            runs = middle * 1.03 ** (np.arange(len(times.steps)) - (len(times.steps) - 1) / 2)
            for chosen, fill in ((times.observed, style["color"]), (~times.observed, "none")):
                axes[1].plot(
                    runs[chosen],
                    times.steps[chosen],
                    style["marker"],
                    color=style["color"],
                    mfc=fill,
                    markersize=5,
                )
    every = sorted({depth for each in depths.values() for depth in each})
    axes[1].set_xscale("log")
    axes[1].set_xticks(every, [str(depth) for depth in every])
    axes[1].xaxis.set_minor_locator(NullLocator())
    axes[1].set_xlabel("blocks")
    axes[0].set_ylim(-0.05, 1.05)
    axes[0].set_ylabel("share that\nsolves it")
    axes[1].set_ylim(bottom=0)
    axes[1].set_ylabel("steps to a\nloss of 0.05")
    legend_above(axes[0], columns=3)
    panel_letters(axes)
    return figure
