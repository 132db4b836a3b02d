"""Figures about models without norms: measurements in, drawings out. Arrays have their seeds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

from measured_transformer.analysis.solving import Solved
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import look, theme, themed

Array = Float[np.ndarray, "..."]
CONCEPTS: Mapping[str, str] = {
    "pre": "residual",
    "post": "norm",
    "none": "none",
    "none-zero": "ffn",
    "pre-zero": "attention",
    "scaled": "learned",
    "gated": "rotary",
    "fixup": "alibi",
    "tanh": "norm",
    "rms": "residual",
}
"""What an arm is drawn as, the same on all figures of the chapter."""
NAMES: Mapping[str, str] = {
    "pre": "pre-norm, Xavier",
    "post": "post-norm, Xavier",
    "none": "no norm, Xavier",
    "none-zero": "no norm, zero branches",
    "pre-zero": "pre-norm, zero branches",
    "scaled": "no norm, scaled branches",
    "gated": "no norm, gated branches",
    "fixup": "no norm, T-Fixup",
    "tanh": "tanh in its place",
    "rms": "RMSNorm, Xavier",
}
"""What an arm is called."""


@themed
def plot_growth(sizes: Mapping[str, Array]) -> Figure:
    """Draw the size of an untrained model's stream over its blocks, on a logarithmic axis.

    Args:
        sizes: arm -> (seed, block_state) root mean squares, the embedding's first.
    """
    figure, axes = subplots(height=3.8)
    for arm, found in sizes.items():
        blocks = np.arange(found.shape[1])
        seed_lines(axes, blocks, found, concept=CONCEPTS[arm], label=NAMES[arm])
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("block")
    axes.set_ylabel("size of the stream")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_dimension_strip(powers: Mapping[str, Array], stated: float) -> Figure:
    """Draw one row an arm: how many times the largest dimension exceeds the smallest; a dot a seed.

    Args:
        powers: name of the row -> one value a seed, in powers of ten.
        stated: the ratio to mark, as a plain number.
    """
    figure, axes = subplots(height=0.9 + 0.42 * len(powers))
    rows = {name: 10 ** np.asarray(values) for name, values in powers.items()}
    seed_strip(
        axes,
        {name: np.log10(values) for name, values in rows.items()},
        label="largest dimension over smallest",
        concepts=dict.fromkeys(rows, "none"),
        reference=float(np.log10(stated)),
    )
    ticks = (1, 3, 10, 30, 100)
    axes.set_xticks([np.log10(tick) for tick in ticks], [str(tick) for tick in ticks])
    return figure


@themed
def plot_success_by_depth(
    found: Mapping[str, Sequence[Solved]], depths: Mapping[str, Sequence[int]]
) -> Figure:
    """Draw the share of runs that solve the task (a), and how long each takes (b), over depth.

    Runs that were stopped before are open marks.

    Args:
        found: arm -> for each of its depths, when its runs solved the task.
        depths: arm -> its numbers of blocks.
    """
    figure, axes = subplots(2, 1, height=2.5, sharex=True)
    for place, (arm, each) in enumerate(found.items()):
        style = look(CONCEPTS[arm])
        shift = 1.05 ** (place - (len(found) - 1) / 2)
        at = np.array(depths[arm]) * shift
        axes[0].plot(at, [one.share for one in each], **style, label=NAMES[arm])
        for depth, times in zip(at, each, strict=True):
            _dots(axes[1], np.full(len(times.steps), depth), times.steps, times, arm)
    every = sorted({depth for each in depths.values() for depth in each})
    for panel in axes:
        panel.set_xscale("log")
        panel.set_xticks(every, [str(depth) for depth in every])
        panel.xaxis.set_minor_locator(NullLocator())
    axes[1].set_xlabel("blocks")
    axes[0].set_ylim(-0.05, 1.05)
    axes[0].set_ylabel("share that\nsolves it")
    axes[1].set_yscale("log")
    low, high = axes[1].get_ylim()
    ticks = [tick for tick in (20, 50, 100, 200, 500, 1000) if low <= tick <= high]
    axes[1].yaxis.set_major_locator(FixedLocator(ticks))
    axes[1].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[1].yaxis.set_minor_formatter(NullFormatter())
    axes[1].set_ylabel("steps to a\nloss of 0.05")
    legend_above(axes[0], columns=2)
    panel_letters(axes)
    return figure


@themed
def plot_substitutes_strip(found: Mapping[str, Solved], steps: int) -> Figure:
    """Draw one row an arm: the steps that each run took; open marks for runs that were stopped before.

    Args:
        found: arm -> when its runs solved the task.
        steps: how many steps they had.
    """
    figure, axes = subplots(height=0.8 + 0.4 * len(found))
    for row, (arm, times) in enumerate(found.items()):
        spread = row + 0.12 * (np.arange(len(times.steps)) - (len(times.steps) - 1) / 2)
        _dots(axes, np.where(times.observed, times.steps, steps), spread, times, arm)
    axes.axvline(steps, color=theme().faint, linestyle="--", linewidth=1.2)
    axes.set_yticks(range(len(found)), [NAMES[arm] for arm in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("steps to a loss of 0.05")
    return figure


def _dots(axes: Axes, x: Array, y: Array, times: Solved, arm: str) -> None:
    """A mark for each run, filled where it solved the task."""
    style = look(CONCEPTS[arm])
    for done, filled in ((times.observed, style["color"]), (~times.observed, "none")):
        axes.plot(
            x[done],
            y[done],
            "s" if style["marker"] == "x" else style["marker"],
            color=style["color"],
            mfc=filled,
            markersize=6,
            alpha=0.85,
        )


@themed
def plot_success_map(
    counts: Mapping[str, Float[np.ndarray, "depth rate"]],
    depths: Sequence[int],
    rates: Sequence[float],
    seeds: int,
) -> Figure:
    """Draw how many runs solve the task, one panel an arm, with the number in each cell.

    Args:
        counts: title of a panel -> (depth, rate) number of runs that solve it; not a number where none was
            trained, for which a dash is drawn.
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
        shown = np.asarray(found, dtype=float)
        panel.imshow(shown / seeds, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        panel.grid(visible=False)
        for (i, j), number in np.ndenumerate(shown):
            if np.isfinite(number):
                ink, word = "black" if number > 0.6 * seeds else "white", f"{number:.0f}"
            else:
                ink, word = theme().ink, "-"
            panel.text(j, i, word, ha="center", va="center", color=ink, fontsize=10)
        panel.set_title(arm, loc="left")
        panel.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        panel.set_yticks(range(len(depths)), [str(depth) for depth in depths])
        panel.tick_params(length=0)
    for panel in np.atleast_2d(axes)[:, 0]:
        panel.set_ylabel("blocks")
    for panel in np.atleast_2d(axes)[-1]:
        panel.set_xlabel("learning rate")
    return figure
