"""Figures of the chapter on depth and heads: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from numpy import ndarray
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.depth_and_heads.measure import (
    DEPTHS,
    HEADS,
    LONGER,
    REPORTED,
    STEPS,
)
from measured_book.rooms.depth_and_heads.reading import by_size, deviations_of

_SIZES: Mapping[int, str] = {2: "residual", 4: "ffn", 6: "attention", 8: "attention"}
"""Number of layers or heads -> what it is drawn as."""
_FACTORS = {
    "depth": "encoder depth",
    "heads": "heads",
    "decoder": "decoder depth",
    "schedule": "schedule",
}


def _small_table(
    axes: Axes, values: Float[ndarray, "depth head"], name: str, frame: str | None
) -> None:
    """Draw nine accuracies as cells coloured from the worst to the best of this table, the best marked."""
    axes.imshow(values, cmap="cividis", aspect="auto", interpolation="nearest")
    row, column = np.unravel_index(values.argmax(), values.shape)
    axes.plot(column, row, "*", color="white", mec="#222832", markersize=11)
    axes.set_title(name, fontsize=9, color=frame or theme().ink, pad=3)
    axes.set_xticks(range(3), [str(h) for h in HEADS], fontsize=8)
    axes.set_yticks(range(3), [str(d) for d in DEPTHS], fontsize=8)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=frame is not None, color=frame, linewidth=3)


@themed
def plot_tables(grid: Dataset) -> Figure:
    """Draw the report's table, one table for each seed, and the mean of them, with the best cell of each.

    Args:
        grid: the result ``grid``.
    """
    figure, axes = subplots(5, 6, height=1.15, sharex=True, sharey=True)
    accuracy = grid.accuracy.transpose("seed", "depth", "heads")
    tables: list[tuple[Any, str, str | None]] = [
        (np.array(REPORTED["validation"]).reshape(3, 3), "the report", COLOURS["attention"])
    ]
    for place, one in enumerate(accuracy.values, 1):
        tables.append((one, f"seed {place}", None))
    tables.append((accuracy.mean("seed").values, "mean of all", COLOURS["residual"]))
    for panel, (values, name, frame) in zip(np.ravel(axes), tables, strict=False):
        _small_table(panel, values, name, frame)
    for panel in np.ravel(axes)[len(tables) :]:
        panel.axis("off")
    figure.supxlabel("heads", fontsize=10)
    figure.supylabel("layers of the encoder", fontsize=10)
    return figure


@themed
def plot_seeds(grid: Dataset, ideal: Dataset) -> Figure:
    """Draw the accuracy of all seeds of the nine models, a row for each model.

    Args:
        grid: the result ``grid``.
        ideal: the result ``ideal``.
    """
    figure, axes = subplots(height=4.6)
    cells = [(depth, heads) for depth in DEPTHS for heads in HEADS]
    groups = {
        f"{depth} layers, {heads} heads": grid.accuracy.sel(depth=depth, heads=heads).values
        for depth, heads in cells
    }
    seed_strip(
        axes,
        groups,
        label="accuracy of tokens, padding left out",
        concepts={name: _SIZES[depth] for name, (depth, _) in zip(groups, cells, strict=True)},
        reference=float(ideal.accuracy.item()),
    )
    return figure


@themed
def plot_curves(grid: Dataset) -> Figure:
    """Draw the accuracy during training: (a) by the depth of the encoder, (b) by the number of heads.

    Args:
        grid: the result ``grid``.
    """
    figure, axes = subplots(2, 1, height=2.9, sharex=True)
    for panel, axis, sizes, unit in (
        (axes[0], "depth", DEPTHS, "layers"),
        (axes[1], "heads", HEADS, "heads"),
    ):
        values = by_size(grid.curve, axis)
        for size in sizes:
            seed_lines(
                panel,
                grid.at.values,
                values.sel({axis: size}).transpose("seed", "at").values,
                concept=_SIZES[size],
                label=f"{size} {unit}",
            )
        panel.set_ylabel("accuracy of tokens")
        legend_above(panel)
    axes[1].set_xlabel("step of training")
    panel_letters(axes)
    return figure


@themed
def plot_decoders(decoders: Dataset, longer: Dataset, unmasked: Dataset, ideal: Dataset) -> Figure:
    """Draw BLEU by decoder depth: after the common number of steps, twice as many, and without the mask.

    Args:
        decoders, longer, unmasked, ideal: the results of these names.
    """
    figure, axes = subplots(3, 1, height=1.9, sharex=True)
    for panel, found, text in (
        (axes[0], decoders, f"{STEPS} steps"),
        (axes[1], longer, f"{LONGER} steps"),
        (axes[2], unmasked, f"{LONGER} steps, no padding mask"),
    ):
        groups = {f"{depth} layers": found.greedy.sel(decoder=depth).values for depth in DEPTHS}
        seed_strip(
            panel,
            groups,
            label="",
            concepts={f"{depth} layers": _SIZES[depth] for depth in DEPTHS},
            reference=float(ideal.greedy.item()),
        )
        panel.set_title(text, loc="right", fontsize=10)
    axes[2].set_xlabel("BLEU of greedy translations")
    for panel, letter in zip(axes, "abc", strict=True):
        panel.set_title(f"({letter})", loc="left", fontweight="bold")
    return figure


@themed
def plot_race(race: Dataset, ideal: Dataset) -> Figure:
    """Draw the accuracy during training with three schedules, each at its own tuned peak.

    Args:
        race, ideal: the results of these names.
    """
    figure, axes = subplots(height=3.4)
    names = {"warm-up": "residual", "constant": "attention", "exponential": "ffn"}
    for name, concept in names.items():
        seed_lines(
            axes,
            race["at"].values,
            race.curve.sel(schedule=name).values,
            concept=concept,
            label=name,
        )
    axes.axhline(float(ideal.accuracy.item()), color=theme().ink, linestyle="--", linewidth=1)
    axes.set_xlabel("step of training")
    axes.set_ylabel("accuracy of tokens")
    legend_above(axes)
    return figure


@themed
def plot_factors(grid: Dataset, decoders: Dataset, race: Dataset) -> Figure:
    """Draw how far a choice moves the accuracy, and how far seeds do: standard deviations over three each.

    Args:
        grid, decoders, race: the results of these names.
    """
    figure, axes = subplots(height=4.4)
    groups, concepts = {}, {}
    for factor, name in _FACTORS.items():
        between, within = deviations_of(grid, decoders, race, factor)
        for label, values, concept in (
            (f"{name}: three values", between, "attention"),
            (f"{name}: three seeds", within, "none"),
        ):
            groups[label], concepts[label] = 100 * values, concept
    seed_strip(
        axes, groups, label="standard deviation of the accuracy, in points", concepts=concepts
    )
    axes.set_xlim(left=0)
    return figure
