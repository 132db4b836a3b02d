"""Figures about gradients under pre-norm and post-norm: measurements in, drawings out. Seeds come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from measured_transformer.analysis.solving import Solved
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.solving import CONCEPTS
from measured_transformer.figures.style import look, theme, themed

Array = Float[np.ndarray, "..."]
KIND_CONCEPTS: Mapping[str, str] = {
    "query": "attention",
    "key": "learned",
    "value": "rotary",
    "output": "alibi",
    "up": "ffn",
    "down": "residual",
    "norm": "norm",
}
"""What a type of parameter is drawn as."""
_STEPS = ("residual", "ffn", "learned", "attention", "rotary")


@themed
def plot_lengths_by_block(panels: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw the length of each block's gradient, one panel a placement, one line a moment of training.

    Args:
        panels: title -> moment -> (seed, block) length of the gradient.
    """
    figure, axes = subplots(len(panels), 1, height=2.7, sharex=True)
    for panel, (title, moments) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for concept, (moment, values) in zip(_STEPS, moments.items(), strict=False):
            _seeds_and_median(panel, values, concept, moment)
        panel.set_yscale("log")
        panel.set_ylabel("gradient's length")
        panel.set_title(title, loc="left")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    np.atleast_1d(axes)[-1].set_xlabel("block")
    legend_above(np.atleast_1d(axes)[0], columns=3)
    return figure


@themed
def plot_lengths_by_kind(panels: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw the length of the gradient of each type of parameter over blocks, one panel a placement.

    Args:
        panels: title -> type of parameter -> (seed, block) length of the gradient.
    """
    figure, axes = subplots(len(panels), 1, height=2.9, sharex=True, sharey=True)
    for panel, (title, kinds) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for kind, values in kinds.items():
            _seeds_and_median(panel, values, KIND_CONCEPTS[kind], kind)
        panel.set_yscale("log")
        panel.set_ylabel("gradient's length")
        panel.set_title(title, loc="left")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    np.atleast_1d(axes)[-1].set_xlabel("block")
    legend_above(np.atleast_1d(axes)[0], columns=4)
    return figure


@themed
def plot_spreads(
    rows: Mapping[str, Array], limit: float, concepts: Mapping[str, str], label: str
) -> Figure:
    """Draw a ratio of gradient lengths, one row a model, on a logarithmic axis.

    Args:
        rows: name -> one ratio a seed.
        limit: what the claim allows, a dashed line.
        concepts: name -> key of the palette.
        label: of the axis.
    """
    figure, axes = subplots(height=0.8 + 0.34 * len(rows))
    axes.set_xscale("log")
    seed_strip(axes, rows, label=label, concepts=concepts, reference=limit)
    axes.set_xlim(left=1)  # a largest over a smallest; the interval of a mean may reach below
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return figure


@themed
def plot_ratios_by_depth(
    rows: Mapping[str, Array], depths: Sequence[int], band: tuple[float, float]
) -> Figure:
    """Draw the first block's gradient over the last one's, over depth, with the range that a claim states.

    Args:
        rows: placement -> (seed, depth) ratio.
        depths: numbers of blocks.
        band: the stated range.
    """
    figure, axes = subplots(height=3.2)
    axes.axhspan(*band, color=theme().ink, alpha=0.12, lw=0)
    axes.axhline(1.0, color=theme().ink, linewidth=0.8, linestyle="--")
    for where, values in rows.items():
        seed_lines(axes, np.array(depths), values, concept=CONCEPTS[where], label=f"{where}-norm")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.5, 1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xscale("log")
    axes.set_xticks(list(depths), [str(depth) for depth in depths])
    axes.minorticks_off()
    axes.set_xlabel("blocks")
    axes.set_ylabel("first block's gradient\nover the last one's")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_cosines_by_state(rows: Mapping[str, Array]) -> Figure:
    """Draw the cosine between the gradient at each state of the stream and that at the last one.

    Args:
        rows: placement -> (seed, state) cosine.
    """
    figure, axes = subplots(height=3.0)
    axes.axhline(0.0, color=theme().ink, linewidth=0.8, linestyle="--")
    for where, values in rows.items():
        states = np.arange(values.shape[1])
        seed_lines(axes, states, values, concept=CONCEPTS[where], label=f"{where}-norm")
    axes.set_xlabel("blocks passed")
    axes.set_ylabel("cosine with the gradient\nat the last state")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(axes, columns=2)
    return figure


@themed
def plot_remedies(panels: Mapping[str, Mapping[str, tuple[str, Solved]]]) -> Figure:
    """Draw the steps that each run took, one panel an optimiser, one row an arm; open marks were stopped.

    Args:
        panels: optimiser -> arm -> (placement that it is drawn as, when its runs solved the task).
    """
    rows = max(len(arms) for arms in panels.values())
    figure, axes = subplots(len(panels), 1, height=0.9 + 0.42 * rows)
    for panel, arms in zip(np.atleast_1d(axes), panels.values(), strict=True):
        seed_strip(
            panel,
            {name: found.steps for name, (_, found) in arms.items()},
            label="steps to a loss of 0.05",
            concepts={name: CONCEPTS[where] for name, (where, _) in arms.items()},
        )
        for row, (_, found) in enumerate(arms.values()):
            stopped = found.steps[~found.observed]
            panel.plot(
                stopped, np.full(len(stopped), row), "o", mfc="none", mec=theme().ink, markersize=9
            )
    panel_letters(axes)
    return figure


def _seeds_and_median(axes: Axes, values: Array, concept: str, label: str) -> None:
    """Draw every seed faint, their median strong: where seeds lie powers of ten apart, one makes the mean."""
    style, blocks = look(concept), np.arange(1, values.shape[1] + 1)
    for row in values:
        axes.plot(blocks, row, color=style["color"], alpha=0.3, linewidth=0.9)
    axes.plot(blocks, np.median(values, axis=0), **style, label=label, zorder=3)


@themed
def plot_steps_strip(rows: Mapping[str, tuple[str, Solved]]) -> Figure:
    """Draw one row an arm: the steps that each run took.

    Args:
        rows: name -> (placement, when its runs solved the task).
    """
    figure, axes = subplots(height=0.6 + 0.55 * len(rows))
    seed_strip(
        axes,
        {name: found.steps for name, (_, found) in rows.items()},
        label="steps to a loss of 0.05",
        concepts={name: CONCEPTS[where] for name, (where, _) in rows.items()},
    )
    return figure
