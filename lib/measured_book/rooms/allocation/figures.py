"""Figures about attention as a budget: arithmetic and results in, drawings out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.allocation.measure import (
    longest,
    margin_weights,
    needed_margin,
    total_weight,
)

_SERIES = ("residual", "attention", "ffn", "norm")


@themed
def plot_budgets(rows: Sequence[tuple[int, int, float]]) -> Figure:
    """Draw softmax weights as a bar of length one a row, cut into the needed tokens' shares and the rest.

    Args:
        rows: number of tokens, how many of them are needed, and their margin.
    """
    figure, axes = subplots(height=0.62 * len(rows) + 0.7)
    for place, (n, m, margin) in enumerate(rows):
        weights = margin_weights(margin, n, m)
        starts = np.concatenate([[0.0], weights.cumsum()])
        axes.barh(
            place, weights[:m], left=starts[:m], height=0.62, color=tint("attention", 0.45),
            edgecolor=COLOURS["attention"], linewidth=1.2,
        )  # fmt: skip
        axes.barh(
            place,
            1 - starts[m],
            left=starts[m],
            height=0.62,
            color=theme().faint,
            edgecolor=theme().faint,
        )
        if weights[0] > 0.07:
            for share, start in zip(weights[:m], starts, strict=False):
                axes.text(
                    start + share / 2, place, f"{share:.2f}", ha="center", va="center", fontsize=11
                )
        if 1 - starts[m] > 0.09:
            middle = (1 + starts[m]) / 2
            axes.text(
                middle, place, f"others {1 - starts[m]:.2f}", ha="center", va="center", fontsize=10
            )
    names = [f"{m} of {n}, margin {margin:g}" for n, m, margin in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("attention weight")
    return figure


@themed
def plot_margins(lengths: Sequence[int], counts: Sequence[int], margins: Sequence[float]) -> Figure:
    """Draw the margin that a total weight of 0.99 needs, and what fixed margins buy, over the length.

    Args:
        lengths: numbers of tokens.
        counts: how many tokens are needed, a line each, in the first panel.
        margins: of a single needed token, a line each, in the second panel.
    """
    figure, (above, below) = subplots(2, 1, height=2.9, sharex=True)
    for m, concept in zip(counts, _SERIES, strict=False):
        fitting = [n for n in lengths if n > m]
        found = [needed_margin(0.99, n, m) for n in fitting]
        seed_lines(above, np.array(fitting), np.array(found), concept=concept, label=f"{m} needed")
    for margin, concept in zip(margins, _SERIES, strict=False):
        found = [total_weight(margin, n) for n in lengths]
        seed_lines(
            below, np.array(lengths), np.array(found), concept=concept, label=f"margin {margin:g}"
        )
        if lengths[0] < longest(0.5, margin) < lengths[-1]:
            below.plot(
                longest(0.5, margin), 0.5, "o", mfc="none", mec=theme().ink, markersize=12, mew=1.6
            )
    above.set_ylabel("margin for 0.99")
    below.set_ylabel("weight of one token")
    below.set_ylim(0, 1.03)
    below.set_xlabel("number of tokens")
    below.set_xscale("log", base=2)
    below.set_xticks(lengths[::2], [f"{n}" for n in lengths[::2]])
    for each in (above, below):
        legend_above(each, columns=4)
    panel_letters((above, below))
    return figure


def _over_lengths(axes: Axes, lengths: np.ndarray, trained_at: int) -> None:
    axes.axvline(trained_at, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n}" for n in lengths])
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel("tokens in the sequence")
    axes.set_ylabel("R² of the reading")
    legend_above(axes, columns=4)


@themed
def plot_readings(reading: Dataset) -> Figure:
    """Draw what readers of 32 tokens explain of longer rows, with what their margin predicts."""
    figure, axes = subplots(height=3.7)
    lengths = reading.tokens.values
    for m, concept in zip(reading.needed.values, _SERIES, strict=False):
        predicted = reading.predicted.sel(needed=m).mean("seed")
        axes.plot(lengths, predicted, color=theme().ink, linewidth=1, linestyle="--", zorder=4)
        read = reading.read.sel(needed=m).transpose("seed", "tokens").values
        seed_lines(axes, lengths, read, concept=concept, label=f"{m} needed")
    _over_lengths(axes, lengths, 32)
    return figure


@themed
def plot_learning_to_read(reading: Dataset) -> Figure:
    """Draw the R2 of readers over the steps of their training, by the length that they are trained at."""
    figure, axes = subplots(height=3.3)
    for n, concept in zip(reading.trained_at.values, _SERIES, strict=False):
        curves = reading.learning.sel(trained_at=n).transpose("seed", "step").values
        seed_lines(axes, reading.step.values, curves, concept=concept, label=f"{n} tokens")
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel("steps")
    axes.set_ylabel("R² of the reading")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_remedies(reading: Dataset) -> Figure:
    """Draw R2 with each remedy, a row each with a dot per seed; dashed where nothing would be lost."""
    found = {str(name): reading.remedied.sel(remedy=name).values for name in reading.remedy.values}
    figure, axes = subplots(height=0.5 * len(found) + 0.8)
    concepts = {name: _SERIES[place % len(_SERIES)] for place, name in enumerate(found)}
    seed_strip(axes, found, label="R² of the reading", concepts=concepts, reference=1.0)
    return figure


@themed
def plot_nothing(nothing: Dataset) -> Figure:
    """Draw the error by the number of marked tokens, with and without a start token, and its weight."""
    figure, (left, right) = subplots(1, 2, height=3.1)
    counts = nothing.marked.values
    names = {"plain": ("attention", "without"), "start": ("norm", "with a start token")}
    for reader, (concept, name) in names.items():
        errors = nothing.error.sel(reader=reader).transpose("seed", "marked").values
        seed_lines(left, counts, errors, concept=concept, label=name)
    weights = nothing.start_weight.transpose("seed", "marked").values
    seed_lines(right, counts, weights, concept="norm", label="start token")
    left.set_yscale("log")
    left.set_ylabel("mean square error")
    right.set_ylabel("weight of the start token")
    right.set_ylim(-0.03, 1.03)
    for axes in (left, right):
        axes.set_xticks(counts)
        axes.set_xlabel("marked tokens")
    for name, y in (("without", 0.83), ("with a start token", 0.42)):
        concept = "attention" if name == "without" else "norm"
        left.text(0.96, y, name, transform=left.transAxes, ha="right", color=COLOURS[concept])
    panel_letters((left, right))
    return figure


@themed
def plot_difference(difference: Dataset) -> Figure:
    """Draw the R2 of one head, of two, and of the difference of two softmaxes over the length."""
    figure, axes = subplots(height=3.5)
    names = {"32": "one head", "two heads": "two heads", "differential": "differential"}
    lengths = difference.tokens.values
    for (arm, name), concept in zip(names.items(), _SERIES, strict=False):
        read = difference.read.sel(arm=arm).transpose("seed", "tokens").values
        seed_lines(axes, lengths, read, concept=concept, label=name)
    _over_lengths(axes, lengths, 32)
    return figure


@themed
def plot_middle(middle: Dataset) -> Figure:
    """Draw what each token contributes to the last one, by its place and by what attention knows of places."""
    figure, axes = subplots(height=3.2)
    names = {"causal mask": "residual", "distance": "norm", "both": "attention"}
    places = middle.place.values[:-1]
    for force, concept in names.items():
        share = middle.share.sel(force=force).isel(seed=0).values[:-1]
        axes.plot(places, share, color=COLOURS[concept], linewidth=3 if force == "both" else 1.6)
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 0.3)
    ends = {
        "causal mask": (7, 0.036, "left"),
        "distance": (40, 0.0016, "left"),
        "both": (24, 0.0122, "left"),
    }
    for force, (x, y, side) in ends.items():
        axes.text(x, y, force, color=COLOURS[names[force]], ha=side, va="bottom")
    axes.set_xlabel("place of the token")
    axes.set_ylabel("share of the last token's vector")
    return figure
