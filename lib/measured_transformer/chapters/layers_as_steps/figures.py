"""Figures on what each layer does to the stream: read early, left out, exchanged, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from numpy.typing import ArrayLike

from measured_transformer.figures.plots import (
    heat_map,
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import look, theme, themed

Array = Float[np.ndarray, "..."]

READERS = {"logit lens": "residual", "tuned lens": "norm"}
"""The colour of each way to read the stream."""
KEPT = {"token": "attention", "position": "sinusoidal"}
"""The colour of what a probe asks for."""
ARMS = {
    "copying": "residual",
    "copying, weight decay": "alibi",
    "reversal": "rotary",
    "reversal, weight decay": "learned",
}
"""The colour of each training with surplus layers."""
SUBLAYERS = ("attention", "ffn")
"""The colour of each kind of sublayer, in their order in a block."""
_EDITS = ("residual", "attention", "ffn", "norm")


@themed
def plot_two_teams(teams: Mapping[str, Mapping[str, ArrayLike]]) -> Figure:
    """Draw how far from the goal two small teams of layers are, step by step, whole and edited.

    Args:
        teams: name of the team -> what was done to it -> distance before the first layer and after each.
    """
    figure, axes = subplots(len(teams), 1, height=2.5)
    for panel, (name, lines) in zip(axes, teams.items(), strict=True):
        for (edit, distance), concept in zip(lines.items(), _EDITS, strict=False):
            walk = np.asarray(distance, dtype=float)
            panel.plot(np.arange(walk.size), walk, **look(concept), label=edit, alpha=0.85)
        panel.set_ylabel(f"{name}:\ndistance to the goal")
        panel.xaxis.set_major_locator(FixedLocator(range(6)))
        panel.set_ylim(-0.6, None)
    legend_above(axes[0], columns=2)
    axes[-1].set_xlabel("layers passed")
    panel_letters(axes)
    return figure


@themed
def plot_read_off(
    panels: Mapping[str, Mapping[str, Array]], guesses: Mapping[str, tuple[float, str]]
) -> Figure:
    """Draw the loss that is read off the stream at each depth, a panel a task, with every seed.

    Args:
        panels: name of the task -> way to read, a key of `READERS` -> nats, (seed, depth).
        guesses: name of the task -> a loss to mark and its name.
    """
    figure, axes = subplots(len(panels), 1, height=2.9, sharex=True)
    for panel, (task, readers) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for name, rows in readers.items():
            depth = np.arange(rows.shape[1])
            seed_lines(panel, depth, rows, concept=READERS[name], label=name)
        value, words = guesses[task]
        panel.axhline(value, color=theme().ink, linestyle="--", linewidth=1)
        panel.annotate(
            words, (1, value), (-4, -4), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", va="top", fontsize=11,
        )  # fmt: skip
        panel.set_ylabel(f"{task}:\nloss read off, nats")
        panel.set_xticks(depth)
    legend_above(np.atleast_1d(axes)[0])
    np.atleast_1d(axes)[-1].set_xlabel("blocks passed when it is read")
    panel_letters(np.atleast_1d(axes))
    return figure


@themed
def plot_edit_map(found: Mapping[str, tuple[Array, Array, Array]], *, label: str) -> Figure:
    """Draw what each edit of a stack of layers costs, as a table of colours with the numbers in it.

    Args:
        found: name of the task -> costs without each layer (layer), with each run twice (layer), and with each
            two exchanged (layer, other), as means over seeds.
        label: what the colours measure, with its unit.
    """
    deepest = max(len(skip) for skip, _, _ in found.values())
    figure, axes = subplots(len(found), 1, height=0.42 * (deepest + 3) + 0.5)
    for panel, (task, (skip, repeat, swap)) in zip(np.atleast_1d(axes), found.items(), strict=True):
        layers = len(skip)
        pairs = np.where(np.eye(layers, dtype=bool), np.nan, swap)
        table = np.concatenate([skip[None], repeat[None], pairs])
        heat_map(
            panel,
            table,
            label=label,
            x_label=f"layer ({task})",
            y_label="",
            limits=(0.0, float(np.nanmax(table))),
        )
        _numbers(panel, table)
        panel.set_xticks(range(layers), [str(i + 1) for i in range(layers)])
        names = [f"swapped with {i + 1}" for i in range(layers)]
        panel.set_yticks(range(layers + 2), ["skipped", "run twice", *names])
    panel_letters(np.atleast_1d(axes))
    return figure


@themed
def plot_cosines_of_writes(found: Mapping[str, Array]) -> Figure:
    """Draw the cosines between the writes of each two layers, a panel a task.

    Args:
        found: name of the task -> cosines, (seed, layer, other); the mean over the seeds is drawn.
    """
    figure, axes = subplots(len(found), 1, height=2.9)
    for panel, (task, cosines) in zip(np.atleast_1d(axes), found.items(), strict=True):
        mean = cosines.mean(0)
        shown = np.where(np.eye(len(mean), dtype=bool), np.nan, mean)
        bar = heat_map(
            panel,
            shown,
            label="cosine",
            x_label="layer",
            y_label=f"{task}: layer",
            diverging=True,
            limits=(-1.0, 1.0),
        )
        _numbers(panel, shown, bar)
        ticks = range(len(mean))
        panel.set_xticks(ticks, [str(i + 1) for i in ticks])
        panel.set_yticks(ticks, [str(i + 1) for i in ticks])
    panel_letters(np.atleast_1d(axes))
    return figure


def _numbers(panel: Axes, table: Array, diverging: Colorbar | None = None) -> None:
    """Write each number into its cell, in a colour that can be read there."""
    largest = float(np.nanmax(np.abs(table)))
    for (row, column), value in np.ndenumerate(table):
        if not np.isnan(value):
            dark = diverging is None and value < 0.5 * largest
            ink = theme().ink if diverging is not None else ("#ffffff" if dark else "#000000")
            text = f"{value:.2f}".replace("-0.00", "0.00")
            panel.text(column, row, text, ha="center", va="center", fontsize=11, color=ink)


@themed
def plot_kept(found: Mapping[str, Array], *, chance: float, bound: float) -> Figure:
    """Draw how often probes read what entered, at each state of the stream, with every seed.

    Args:
        found: what is asked for, a key of `KEPT` -> accuracy, (seed, state), a state a sublayer.
        chance: the accuracy of guessing.
        bound: an accuracy to mark.
    """
    figure, axes = subplots(height=3.3)
    for name, rows in found.items():
        seed_lines(axes, np.arange(rows.shape[1]) / 2, rows, concept=KEPT[name], label=name)
    for value in (chance, bound):
        axes.axhline(value, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("blocks passed (a half: its attention)")
    axes.set_ylabel("accuracy of the probe")
    legend_above(axes)
    return figure


@themed
def plot_surplus(found: Mapping[str, Array], *, bound: float) -> Figure:
    """Draw how large the writes of each layer are beside the stream, for each training, with every seed.

    Args:
        found: training, a key of `ARMS` -> length of the writes over that of the stream, (seed, layer).
        bound: a ratio to mark.
    """
    figure, axes = subplots(height=3.6)
    for name, rows in found.items():
        layers = np.arange(1, rows.shape[1] + 1)
        seed_lines(axes, layers, rows, concept=ARMS[name], label=name)
    axes.axhline(bound, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_yscale("log")
    axes.set_xticks(layers)
    axes.set_xlabel("layer")
    axes.set_ylabel("length of a write / stream")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_lengths_and_losses(
    length: Sequence[Array],
    rise: Sequence[Array],
    agreement: Mapping[str, Array],
    *,
    bound: float,
    floor: float = 1e-3,
) -> Figure:
    """Draw how long a sublayer's writes are against how much it is missed, and how measures agree with length.

    Args:
        length: for each model the share of the written length of each sublayer, attention first.
        rise: for each model the rise of the loss, in nats, when the sublayer is set to zero.
        agreement: measure -> rank correlation with the length, one a seed.
        bound: a correlation to mark.
        floor: smallest rise that is drawn; smaller ones lie on the edge.
    """
    figure, (above, below) = subplots(2, 1, height=2.9)
    for kind, (concept, name) in enumerate(
        zip(SUBLAYERS, ("attention", "feed-forward"), strict=True)
    ):
        style = look(concept) | {"linestyle": "none"}
        x = np.concatenate([one[kind::2] for one in length])
        y = np.maximum(np.concatenate([one[kind::2] for one in rise]), floor)
        above.plot(x, y, **style, alpha=0.6, label=name)
    above.set_yscale("log")
    above.set_xlabel("share of the written length")
    above.set_ylabel("rise of the loss\nset to zero, nats")
    legend_above(above)
    concepts = dict(
        zip(agreement, ("residual", "norm", "learned", "sinusoidal", "none"), strict=False)
    )
    seed_strip(
        below,
        agreement,
        label="rank correlation with the length",
        concepts=concepts,
        reference=bound,
    )
    below.set_xlim(-1.05, 1.05)
    panel_letters((above, below))
    return figure
