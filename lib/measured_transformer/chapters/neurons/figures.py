"""Figures on neurons as keys and values: one neuron, both conventions, what neurons tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from measured_transformer.chapters.neurons.measure import Portrait
from measured_transformer.figures.diagrams import canvas
from measured_transformer.figures.plots import legend_above, panel_letters, seed_strip, subplots
from measured_transformer.figures.style import COLOURS, WIDTH, theme, themed, tint

Array = Float[np.ndarray, "..."]


def visible(text: str) -> str:
    """Characters as they can be printed in a figure: a space and a line break get a sign.

    >>> visible("a b")
    'a␣b'
    """
    return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "→")


@themed
def plot_one_neuron(seen: Portrait) -> Figure:
    """Draw one neuron: its activation over text, its key's products by token and its value's push by token."""
    lines, said, products, pushes = seen.lines, seen.said, seen.products, seen.pushes
    figure = subplots(height=4.7)[0]
    figure.clear()
    grid = figure.add_gridspec(2, 2, height_ratios=[0.33 * len(lines), 3.0])
    top = figure.add_subplot(grid[0, :])
    left, right = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    largest = max(max(row) for row in said) or 1.0
    for row, (letters, values) in enumerate(zip(lines, said, strict=True)):
        for place, (letter, value) in enumerate(zip(letters, values, strict=True)):
            share = max(0.0, value / largest)
            if share > 0.01:
                shade = Rectangle((place, row), 1, 0.9, color=tint("ffn", 0.1 + 0.7 * share), lw=0)
                top.add_patch(shade)
            top.text(
                place + 0.5, row + 0.47, visible(letter), ha="center", va="center", fontsize=10,
                family="DejaVu Sans Mono", color=theme().ink,
            )  # fmt: skip
    top.set_xlim(0, max(map(len, lines)))
    top.set_ylim(len(lines), 0)
    top.axis("off")
    spread = np.array(list(products.values()))
    rows = np.arange(len(products))
    left.axvline(0, color=theme().ink, linewidth=1)
    left.hlines(rows, spread[:, 0], spread[:, 2], color=COLOURS["ffn"], linewidth=2, alpha=0.6)
    left.plot(spread[:, 1], rows, "^", color=COLOURS["ffn"], markersize=7)
    left.set_xlabel("key's product and bias")
    right.axvline(0, color=theme().ink, linewidth=1)
    right.barh(np.arange(len(pushes)), list(pushes.values()), color=COLOURS["ffn"], height=0.7)
    right.set_xlabel("value's push on the logit")
    right.xaxis.set_major_locator(MaxNLocator(4))
    for axes, tokens in ((left, list(products)), (right, list(pushes))):
        axes.set_yticks(range(len(tokens)), map(visible, tokens), family="DejaVu Sans Mono")
        axes.set_ylim(len(tokens) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
    panel_letters((top, left, right))
    return figure


@themed
def plot_conventions(*, d_model: int = 3, d_ff: int = 5, neuron: int = 1) -> Figure:
    """Draw where one neuron's key and value stand, with columns and with rows as vectors.

    Args:
        d_model: width of the stream.
        d_ff: number of neurons.
        neuron: which one is marked.
    """
    figure, panels = subplots(2, 1, height=2.6)
    for axes, columns in zip(panels, (True, False), strict=True):
        canvas(axes, width=15.2, height=6.2)
        if columns:
            x = _matrix(axes, 0.2, (d_model, d_ff), "$W_2$", column=neuron, marks="value")
            x = _sign(axes, x, "ReLU(", 1.75)
            x = _matrix(axes, x, (d_ff, d_model), "$W_1$", row=neuron, marks="key")
            x = _matrix(axes, x, (d_model, 1), "$x$")
            _sign(axes, x, ")", 0.4)
        else:
            x = _sign(axes, 0.2, "ReLU(", 1.75)
            x = _matrix(axes, x, (1, d_model), "$x$")
            x = _matrix(axes, x, (d_model, d_ff), "$W_{in}$", column=neuron, marks="key")
            x = _sign(axes, x, ")", 0.5)
            _matrix(axes, x, (d_ff, d_model), "$W_{out}$", row=neuron, marks="value")
    panel_letters(panels)
    return figure


def _matrix(
    axes: Axes,
    x: float,
    shape: tuple[int, int],
    name: str,
    *,
    row: int | None = None,
    column: int | None = None,
    marks: str = "",
) -> float:
    """Draw a matrix from x on, with a row or column marked, and return where the next thing begins."""
    cell, (rows, columns) = 0.84, shape
    top = 3.15 + 0.5 * cell * rows
    for i in range(rows):
        for j in range(columns):
            strong = i == row or j == column
            place = (x + cell * j, top - cell * (i + 1))
            colour = tint("ffn" if marks else "residual", 0.85 if strong else 0.12)
            ink = theme().ink
            axes.add_patch(
                Rectangle(place, cell, cell, facecolor=colour, edgecolor=ink, linewidth=0.8)
            )
    end = x + cell * columns
    axes.text((x + end) / 2, top - cell * rows - 0.12, name, ha="center", va="top", fontsize=13)
    if row is not None:
        axes.text(end + 0.12, top - cell * (row + 0.5), marks, ha="left", va="center")
    if column is not None:
        axes.text(x + cell * (column + 0.5), top + 0.1, marks, ha="center", va="bottom")
    return end + (1.3 if row is not None else 0.25)


def _sign(axes: Axes, x: float, text: str, width: float) -> float:
    axes.text(x, 3.15, text, ha="left", va="center", fontsize=13)
    return x + width


@themed
def plot_told_apart(areas: Mapping[str, Mapping[str, Array]], level: float) -> Figure:
    """Draw how well neurons tell a label apart, sorted, a panel for each label and a line for each seed.

    Args:
        areas: label -> arm -> area under the curve, shape (seed, neuron).
        level: the area from which a neuron counts, marked.
    """
    figure, panels = subplots(1, len(areas), height=3.5, sharey=True)
    looks = {0: ("ffn", "-"), 1: ("none", "--"), 2: ("random", ":")}
    for axes, (label, arms) in zip(np.atleast_1d(panels), areas.items(), strict=True):
        axes.axhline(level, color=theme().ink, linewidth=1, linestyle="--")
        for number, (arm, values) in enumerate(arms.items()):
            concept, line = looks[number]
            for seed, row in enumerate(np.atleast_2d(values)):
                axes.plot(
                    np.linspace(0, 1, row.size), np.sort(row), color=COLOURS[concept],
                    linestyle=line, linewidth=1.3, alpha=0.7, label=arm if seed == 0 else None,
                )  # fmt: skip
        axes.set_xlabel(f"neurons, sorted\n{label}")
        axes.set_xticks([0, 0.5, 1])
        axes.set_ylim(-0.02, 1.05)
    np.atleast_1d(panels)[0].set_ylabel("area under the curve")
    handles, labels = np.atleast_1d(panels)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_strips(
    panels: Mapping[str, Mapping[str, Array]],
    concepts: Mapping[str, str],
    *,
    limits: tuple[float, float] | None = None,
    reference: float | None = None,
) -> Figure:
    """Draw every seed of every row, one panel below another.

    Args:
        panels: what is measured -> row -> a value for each seed.
        concepts: row -> key of `COLOURS`.
        limits: of the axis; those of the values unless given.
        reference: a value to mark.
    """
    rows = max(map(len, panels.values()))
    figure, axes = subplots(len(panels), 1, height=0.75 + 0.33 * rows)
    for each, (label, groups) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        seed_strip(each, groups, label=label, concepts=concepts, reference=reference)
        if limits is not None:
            each.set_xlim(limits)
    if len(panels) > 1:
        panel_letters(axes)
    return figure


@themed
def plot_busy(
    steps: Sequence[int], over_steps: Mapping[str, Array], over_widths: Mapping[int, Array]
) -> Figure:
    """Draw the share of neurons that are active on more than half of the inputs, over steps and over widths.

    Args:
        steps: numbers of steps.
        over_steps: name -> share, shape (seed, step).
        over_widths: number of neurons -> a share for each seed.
    """
    figure, (left, right) = subplots(1, 2, height=3.5, sharey=True)
    looks = {0: ("ffn", "^", "-"), 1: ("none", "s", "--"), 2: ("random", "o", ":")}
    places = np.arange(len(steps))
    for number, (name, values) in enumerate(over_steps.items()):
        concept, marker, line = looks[number]
        for row in values:
            left.plot(places, row, color=COLOURS[concept], alpha=0.35, linewidth=0.9)
        left.plot(
            places,
            values.mean(0),
            color=COLOURS[concept],
            marker=marker,
            linestyle=line,
            label=name,
        )
    left.set_xticks(places, [str(step) for step in steps])
    left.set_xlabel("steps")
    left.set_ylabel("share of neurons")
    legend_above(left, columns=1)
    widths = np.arange(len(over_widths))
    for place, values in zip(widths, over_widths.values(), strict=True):
        right.plot(np.full(len(values), place), values, "^", color=COLOURS["ffn"], alpha=0.5, mew=0)
    means = [float(np.mean(values)) for values in over_widths.values()]
    right.plot(widths, means, color=COLOURS["ffn"])
    right.set_xticks(widths, [str(width) for width in over_widths])
    right.set_xlim(-0.4, len(over_widths) - 0.6)
    right.set_xlabel("neurons in a block")
    for axes in (left, right):
        axes.axhline(0.25, color=theme().ink, linewidth=1, linestyle="--")
        axes.set_ylim(-0.02, None)
    panel_letters((left, right))
    return figure


@themed
def plot_promised(panels: Mapping[str, tuple[Array, Array]], *, most: int = 3000) -> Figure:
    """Draw measured against promised changes of logits, a dot for each neuron and token, and a fitted line.

    Args:
        panels: name -> promised and measured changes, of equal shape.
        most: number of dots drawn; of more, as many are drawn at random.
    """
    figure, axes = subplots(1, len(panels), height=WIDTH / len(panels))
    for each, (name, (promise, measure)) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        x, y = np.ravel(promise), np.ravel(measure)
        if x.size > most:
            kept = np.random.default_rng(0).choice(x.size, most, replace=False)
            x, y = x[kept], y[kept]
        slope, start = np.polyfit(np.ravel(promise), np.ravel(measure), 1)
        each.axline((0, start), slope=slope, color=theme().ink, linewidth=1, linestyle="--")
        each.plot(x, y, ".", color=COLOURS["ffn"], markersize=3, alpha=0.4, mew=0)
        for limit, values in ((each.set_xlim, x), (each.set_ylim, y)):
            reach = 1.05 * float(np.abs(values).max())
            limit(-reach, reach)
        each.set_xlabel(f"promised, {name}")
    np.atleast_1d(axes)[0].set_ylabel("measured")
    panel_letters(np.atleast_1d(axes))
    return figure
