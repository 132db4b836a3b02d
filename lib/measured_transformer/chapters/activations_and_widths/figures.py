"""Figures on what a network bends with and on how wide it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from measured_transformer.chapters.activations_and_widths.measure import (
    Bend,
    product_network,
    products,
)
from measured_transformer.figures.plots import legend_above, panel_letters, seed_strip, subplots
from measured_transformer.figures.style import look, theme, themed

Array = Float[np.ndarray, "..."]

BEND_NAMES: Mapping[Bend, str] = {
    "relu": "ReLU",
    "gelu": "GELU",
    "swiglu": "SwiGLU",
    "squared": "squared ReLU",
}
"""What the activations are called in figures."""
BEND_CONCEPTS: Mapping[str, str] = {
    "ReLU": "none",
    "GELU": "ffn",
    "SwiGLU": "alibi",
    "squared ReLU": "learned",
}
"""The colour of each activation."""


@themed
def plot_products_by_hand(*, reach: float = 2.0) -> Figure:
    """Draw what the four networks of `product_network` write over a plane of two numbers.

    Args:
        reach: both axes go from -reach to reach.
    """
    figure, panels = subplots(2, 2, height=3.0, sharex=True, sharey=True)
    grid = torch.linspace(-reach, reach, 161, dtype=torch.float64)
    across = grid.numpy()
    levels = np.arange(-3.0, 3.01, 0.5)
    order: tuple[Bend, ...] = ("relu", "gelu", "squared", "swiglu")
    for axes, bend in zip(panels.flat, order, strict=True):
        written = products(product_network(bend), grid, grid).numpy()
        axes.contour(
            across, across, across[:, None] * across, levels=levels, colors=[theme().faint],
            linewidths=4, linestyles="solid",
        )  # fmt: skip
        marks = axes.contour(
            across, across, written, levels=levels,
            colors=[look(BEND_CONCEPTS[BEND_NAMES[bend]])["color"]], linewidths=1.5,
            negative_linestyles="dashed",
        )  # fmt: skip
        axes.clabel(marks, levels=[-2.0, -1.0, 1.0, 2.0], fontsize=9, fmt="%g")
        axes.set_title(BEND_NAMES[bend], loc="right", fontsize=11)
        axes.set_aspect("equal")
        axes.grid(visible=False)
    for axes in panels[-1]:
        axes.set_xlabel("$a$")
    for axes in panels[:, 0]:
        axes.set_ylabel("$b$")
    panel_letters(panels.flat)
    return figure


@themed
def plot_losses_by_rate(
    found: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw the loss of each activation over the learning rate, every tuning seed; a panel for each task.

    A ring stands around the rate whose mean is least.

    Args:
        found: label of the task -> name of the activation -> rate -> the loss of each seed.
        limits: label of the task -> range of its axis; what lies outside of it is cut.
    """
    figure, panels = subplots(len(found), 1, height=2.9)
    for axes, (task, arms) in zip(np.atleast_1d(panels), found.items(), strict=True):
        for name, losses in arms.items():
            style = look(BEND_CONCEPTS[name])
            rates = sorted(losses)
            rows = np.array([losses[rate] for rate in rates]).T
            for row in rows:
                axes.plot(rates, row, color=style["color"], alpha=0.35, linewidth=0.9)
            means = rows.mean(0)
            axes.plot(rates, means, **style, label=name, zorder=3)
            best = int(means.argmin())
            axes.plot(
                rates[best], means[best], "o", mfc="none", mec=theme().ink, markersize=13,
                mew=1.6, zorder=4,
            )  # fmt: skip
        _log_axis(axes, rates)
        axes.set_xlabel("learning rate")
        axes.set_ylabel(f"loss, {task}")
        if limits and task in limits:
            axes.set_ylim(*limits[task])
    legend_above(np.atleast_1d(panels)[0], columns=4)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_against_relu(
    found: Mapping[str, Mapping[str, Array]],
    *,
    margin: float,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw each activation's loss minus that of ReLU from the same seed; a panel for each task.

    Args:
        found: label of the task -> name of the activation -> difference of each seed.
        margin: within which two losses count as equal, shaded.
        limits: label of the task -> range of its axis; what lies outside of it is cut.
    """
    rows = max(len(arms) for arms in found.values())
    figure, panels = subplots(len(found), 1, height=0.5 * rows + 0.9)
    for axes, (task, arms) in zip(np.atleast_1d(panels), found.items(), strict=True):
        axes.axvspan(-margin, margin, color=theme().faint, zorder=0, linewidth=0)
        seed_strip(
            axes, arms, label=f"loss minus that of ReLU, {task}", concepts=BEND_CONCEPTS,
            reference=0.0,
        )  # fmt: skip
        if limits and task in limits:
            axes.set_xlim(*limits[task])
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_by_width(
    found: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    concepts: Mapping[str, str],
    *,
    judged: Sequence[float] = (1.0, 4.0),
) -> Figure:
    """Draw a quantity over the width of the hidden layer, every seed; a panel for each quantity.

    Args:
        found: label of the quantity -> what is held fixed -> ratio of the widths -> value of each seed.
        concepts: what is held fixed -> key of `COLOURS`.
        judged: the ratios that the claim compares, shaded.
    """
    figure, panels = subplots(len(found), 1, height=2.9, sharex=True)
    for axes, (label, lines) in zip(np.atleast_1d(panels), found.items(), strict=True):
        for ratio in judged:
            axes.axvspan(ratio / 1.12, ratio * 1.12, color=theme().faint, zorder=0, linewidth=0)
        for place, (name, values) in enumerate(lines.items()):
            style = look(concepts[name])
            ratios = sorted(values)
            shift = 1.03 if place else 1 / 1.03  # dots of equal widths stand side by side
            for ratio in ratios:
                dots = np.asarray(values[ratio], dtype=float)
                axes.plot(
                    np.full(dots.size, ratio * shift), dots, "o", color=style["color"], alpha=0.55,
                    markersize=5, mew=0,
                )  # fmt: skip
            means = [float(np.mean(values[ratio])) for ratio in ratios]
            axes.plot(
                [ratio * shift for ratio in ratios], means, color=style["color"],
                linestyle=style["linestyle"], marker="D", mec=theme().ink, markersize=7,
                label=name, zorder=4,
            )  # fmt: skip
        axes.set_ylabel(label)
        every = sorted({ratio for values in lines.values() for ratio in values})
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, [f"{ratio:g}" for ratio in every])
        axes.minorticks_off()
        axes.set_xlabel("width of the hidden layer / width of the stream")
        axes.tick_params(labelbottom=True)
    legend_above(np.atleast_1d(panels)[0], columns=2)
    if len(found) > 1:
        panel_letters(np.atleast_1d(panels))
    return figure


def _log_axis(axes: Axes, rates: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(list(rates), [f"{rate:g}" for rate in rates])
