"""Figures on what a network's activation can compute and on how wide it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator
from measured_transformer.viewer.style import look, theme, themed
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_strip, subplots
from measured_book.rooms.activations_and_widths.measure import (
    HANDMADE,
    HELD,
    KINDS,
    REACH,
    READ,
    product_network,
    products,
)
from measured_book.rooms.activations_and_widths.reading import fitted_loss, log_errors

KIND_NAMES: Mapping[str, str] = {
    "relu": "ReLU",
    "gelu": "GELU",
    "squared": "squared ReLU",
    "swiglu": "SwiGLU",
    "geglu": "GEGLU",
}
"""What the activations are called in figures."""
KIND_CONCEPTS: Mapping[str, str] = {
    "relu": "none",
    "gelu": "ffn",
    "squared": "learned",
    "swiglu": "alibi",
    "geglu": "sinusoidal",
}
"""What they are drawn as."""
HELD_NAMES: Mapping[str, str] = {"stream": "same stream", "parameters": "same parameters"}
HELD_CONCEPTS: Mapping[str, str] = {"stream": "ffn", "parameters": "residual"}


@themed
def plot_products_by_hand() -> Figure:
    """Draw what the four networks of `product_network` write over a plane of two numbers."""
    figure, panels = subplots(2, 2, height=3.0, sharex=True, sharey=True)
    grid = torch.linspace(-REACH, REACH, 161, dtype=torch.float64)
    across = grid.numpy()
    levels = np.arange(-3.0, 3.01, 0.5)
    for axes, kind in zip(panels.flat, HANDMADE, strict=True):
        written = products(product_network(kind), grid, grid).numpy()  # type: ignore[arg-type]
        axes.contour(
            across, across, across[:, None] * across, levels=levels, colors=[theme().faint],
            linewidths=4, linestyles="solid",
        )  # fmt: skip
        marks = axes.contour(
            across, across, written, levels=levels, colors=[look(KIND_CONCEPTS[kind])["color"]],
            linewidths=1.5, negative_linestyles="dashed",
        )  # fmt: skip
        axes.clabel(marks, levels=[-2.0, -1.0, 1.0, 2.0], fontsize=9, fmt="%g")
        axes.set_title(KIND_NAMES[kind], loc="right", fontsize=11)
        axes.set_aspect("equal")
        axes.grid(visible=False)
    for axes in panels[-1]:
        axes.set_xlabel("$a$")
    for axes in panels[:, 0]:
        axes.set_ylabel("$b$")
    panel_letters(panels.flat)
    return figure


@themed
def plot_learned_products(multiplied: Dataset) -> Figure:
    """Draw the error of a learned product over the number of neurons, for each activation and seed.

    Args:
        multiplied: the result ``multiplied``.
    """
    figure, axes = subplots(height=3.9)
    logs = log_errors(multiplied)
    neurons = logs.neurons.values
    shifts = np.linspace(-0.05, 0.05, len(KINDS))
    for kind, shift in zip(KINDS, shifts, strict=True):
        style = look(KIND_CONCEPTS[kind])
        at = neurons * 2**shift
        errors = np.exp(logs.sel(kind=kind).transpose("seed", "neurons").values)
        for row in errors:
            axes.plot(at, row, "o", color=style["color"], alpha=0.3, markersize=4, mew=0)
        means = np.exp(np.log(errors).mean(0))
        axes.plot(at, means, **style, zorder=3)
        axes.annotate(
            KIND_NAMES[kind], (at[-1], means[-1]), (8, 0), textcoords="offset points",
            color=style["color"], va="center", fontsize=10,
        )  # fmt: skip
    _doublings(axes, neurons)
    axes.set_xlim(neurons[0] / 1.2, neurons[-1] * 2.1)
    axes.set_yscale("log")
    axes.set_xlabel("neurons (two thirds of them, with a gate)")
    axes.set_ylabel("error of the learned product")
    return figure


@themed
def plot_text(text: Dataset) -> Figure:
    """Draw each activation's loss on text less that of ReLU from the same seed.

    Args:
        text: the result ``text``.
    """
    figure, axes = subplots(height=2.6)
    axes.axvspan(-0.02, 0.02, color=theme().faint, zorder=0, linewidth=0)
    rows = {
        KIND_NAMES[kind]: (text.loss.sel(kind=kind) - text.loss.sel(kind="relu")).values
        for kind in READ[1:]
    }
    concepts = {KIND_NAMES[kind]: KIND_CONCEPTS[kind] for kind in KINDS}
    seed_strip(
        axes, rows, label="loss on text minus that of ReLU, nats", concepts=concepts, reference=0.0
    )
    return figure


@themed
def plot_widths(widths: Dataset, facts: Dataset) -> Figure:
    """Draw (a) the loss on text over the width, (b) what is kept of a table of facts.

    Args:
        widths: the result ``widths``.
        facts: the result ``facts``.
    """
    figure, (above, below) = subplots(2, 1, height=2.8, height_ratios=[1.35, 1])
    ratios = widths.ratio.values
    base = widths.loss.sel(ratio=4, held="stream").mean().item()
    for held, shift in zip(HELD, (-0.04, 0.04), strict=True):
        style = look(HELD_CONCEPTS[held])
        losses = widths.loss.sel(held=held)
        at = ratios * 2**shift
        for seed in losses.seed.values:
            dots = losses.sel(seed=seed).values
            above.plot(at, dots, "o", color=style["color"], alpha=0.3, markersize=4, mew=0)
        above.plot(at, losses.mean("seed").values, **style, zorder=3)
        ends = [float(fitted_loss(widths, held=held, ratio=float(r)).mean()) for r in (1, 8)]
        above.plot([1, 8], ends, color=style["color"], linewidth=0.9, alpha=0.8)
        above.text(
            8.6, float(losses.sel(ratio=8).mean()), HELD_NAMES[held], color=style["color"],
            va="center", fontsize=10,
        )  # fmt: skip
    above.axhline(base, color=theme().faint, linewidth=1, zorder=0)
    _doublings(above, ratios)
    above.set_xlim(0.85, 15)
    above.set_xlabel("width of the hidden layer / width of the stream")
    above.set_ylabel("loss on text, nats")
    rows = {"four times": "four", "once, same stream": "once", "once, wider stream": "wider"}
    seed_strip(
        below,
        {name: facts.bits.sel(arm=arm).values for name, arm in rows.items()},
        label="bits of the table that are kept",
        concepts={
            "four times": "none",
            "once, same stream": "ffn",
            "once, wider stream": "residual",
        },
    )
    panel_letters(np.array([above, below]))
    return figure


def _doublings(axes: Axes, at: np.ndarray) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks([float(one) for one in at], [f"{one:g}" for one in at])
