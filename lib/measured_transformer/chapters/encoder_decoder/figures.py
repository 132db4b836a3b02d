"""Figures of the chapter on encoder and decoder: results in, drawings out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from xarray import DataArray, Dataset

from measured_transformer.figures.diagrams import box, canvas, wire
from measured_transformer.figures.plots import panel_letters, seed_strip, subplots
from measured_transformer.figures.style import COLOURS, theme, themed, tint
from measured_transformer.tasks.number_alignment import aligned_words
from measured_transformer.tasks.numbers import number_words

_READS = {
    "all": ("all states", "residual"),
    "mean": ("their mean", "ffn"),
    "last": ("the last state", "norm"),
    "none": ("nothing", "none"),
    "taken away": ("taken away\nafter training", "attention"),
}
"""What a decoder reads -> its name in figures and what it is drawn as."""
_RECIPES = {
    "recipe": ("the recipe", "residual"),
    "no dropout": ("without dropout", "attention"),
    "no smoothing": ("without smoothing", "ffn"),
    "neither": ("without both", "none"),
}
_SIDES = {
    "both": ("both sides", "residual"),
    "left": ("left alone", "attention"),
    "right": ("right alone", "norm"),
}


def _words(axes: Axes, words: Sequence[str], y: float, concept: str, width: float) -> list[float]:
    """Write words in a row of boxes; the middle of each."""
    sizes = np.array([0.24 * len(word) + 0.5 for word in words])
    gap = (width - sizes.sum()) / (len(words) - 1)
    left, centres = 0.0, []
    for word, size in zip(words, sizes, strict=True):
        axes.add_patch(
            Rectangle((left, y), size, 0.9, facecolor=tint(concept), edgecolor=COLOURS[concept])
        )
        axes.text(left + size / 2, y + 0.43, word, ha="center", va="center", fontsize=10)
        centres.append(left + size / 2)
        left += size + gap
    return centres


@themed
def plot_number(number: int) -> Figure:
    """Draw a number in English above, in German below, and which word comes from which.

    Args:
        number: whose words are drawn.
    """
    figure, axes = subplots(height=2.2)
    width = 13.4
    above = _words(axes, number_words(number, "en"), 3.0, "residual", width)
    below = _words(axes, number_words(number, "de"), 0.0, "attention", width)
    places = aligned_words(number)
    for target, source in enumerate(places):
        if source < 0:
            continue
        crossing = any(
            (other - source) * (i - target) < 0 for i, other in enumerate(places) if other >= 0
        )
        axes.plot(
            [below[target], above[source]],
            [0.95, 2.95],
            color=COLOURS["attention"] if crossing else COLOURS["none"],
            linewidth=2.2 if crossing else 1.2,
            linestyle="-" if crossing else "--",
        )
    axes.set_xlim(-0.15, width + 0.15)
    axes.set_ylim(-0.15, 4.05)
    axes.axis("off")
    return figure


@themed
def plot_machine() -> Figure:
    """Draw one block of an encoder and one of a decoder, and what passes between them."""
    figure, axes = subplots(height=4.6)
    canvas(axes, width=11.4, height=8.2)
    left, right = 2.4, 8.2
    for x, rows in ((left, (2.6, 5.4)), (right, (1.8, 4.1, 6.1))):
        names = {
            2.6: ("attention", "self-attention,\nboth ways"),
            5.4: ("ffn", "feed-forward"),
            1.8: ("attention", "self-attention,\nback alone"),
            4.1: ("attention", "cross-attention"),
            6.1: ("ffn", "feed-forward"),
        }
        points = [0.7, *rows, 7.5]
        for low, high in itertools.pairwise(points):
            wire(
                axes,
                [(x, low + (0 if low == 0.7 else 0.5)), (x, high - (0 if high == 7.5 else 0.5))],
            )
        for y in rows:
            box(axes, (x, y), names[y][0], label=names[y][1], width=3.3)
    wire(axes, [(left, 7.1), (left + 2.3, 7.1), (left + 2.3, 4.1), (right - 1.7, 4.1)])
    axes.text(5.45, 4.3, "keys,\nvalues", ha="center", va="bottom", fontsize=11)
    axes.text(right + 0.2, 2.95, "queries", ha="left", va="center", fontsize=11)
    for x, text in ((left, "source words"), (right, "target words so far")):
        axes.text(x, 0.35, text, ha="center", va="center", fontsize=11)
    axes.text(left, 7.8, "memory", ha="center", va="center", fontsize=11)
    axes.text(right, 7.8, "chances of the next word", ha="center", va="center", fontsize=11)
    return figure


def _map(axes: Axes, weights: DataArray, number: int) -> None:
    """Draw the weights of one head for a number, right cells framed."""
    source = [*number_words(number, "en"), "(end)"]
    target = [*number_words(number, "de"), "(end)"]
    axes.imshow(
        weights.values, cmap="Greys" if theme().name == "light" else "Greys_r", vmin=0, vmax=1
    )
    for row, column in enumerate(aligned_words(number)):
        if column >= 0:
            axes.add_patch(
                Rectangle(
                    (column - 0.46, row - 0.46),
                    0.92,
                    0.92,
                    fill=False,
                    edgecolor=COLOURS["attention"],
                    linewidth=2.2,
                )
            )
    axes.set_xticks(range(len(source)), source, rotation=55, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.tick_params(length=0, labelsize=9)
    axes.grid(visible=False)


@themed
def plot_alignment(examples: Dataset, heads: Sequence[tuple[int, int]], example: int = 1) -> Figure:
    """Draw two heads of cross-attention for one number, the right cells framed.

    Args:
        examples: the result ``examples``.
        heads: layer and head of each panel, counted from zero.
        example: which of the numbers.
    """
    figure, axes = subplots(1, 2, height=3.9)
    found = examples.isel(seed=0, example=example)
    for panel, (layer, head) in zip(axes, heads, strict=True):
        _map(panel, found.pattern.sel(layer=layer, head=head), int(found.number))
        panel.set_xlabel(f"source word; block {layer + 1}, head {head + 1}")
    axes[0].set_ylabel("word to be written")
    axes[1].set_yticklabels([])
    panel_letters(axes)
    return figure


@themed
def plot_heads(alignment: Dataset) -> Figure:
    """Draw each head's share of right links, sorted within its block, trained and untrained.

    Args:
        alignment: the result ``alignment``.
    """
    figure, axes = subplots(height=3.6)
    looks = {"trained": ("attention", "s"), "untrained": ("none", "o")}
    layers = alignment.layer.values
    count = alignment.sizes["head"]
    for model, (concept, marker) in looks.items():
        for layer in layers:
            values = np.sort(alignment.accuracy.sel(model=model, layer=layer).values, axis=1)[
                :, ::-1
            ]
            for rank in range(count):
                x = int(layer) * (count + 1) + rank + (0.14 if model == "untrained" else -0.14)
                column = values[:, rank]
                jitter = 0.05 * (np.arange(column.size) % 3 - 1)
                axes.plot(
                    x + jitter,
                    column,
                    marker,
                    color=COLOURS[concept],
                    alpha=0.6,
                    markersize=4.5,
                    mew=0,
                    label=model if layer == 0 and rank == 0 else None,
                )
    diagonal = float(alignment.diagonal.mean())
    axes.axhline(diagonal, color=theme().ink, linewidth=1, linestyle="--")
    axes.text(count, diagonal + 0.015, "the same place", ha="center", va="bottom", fontsize=9)
    ticks = [int(layer) * (count + 1) + rank for layer in layers for rank in range(count)]
    names = ["best", *(["2nd", "3rd"] + [f"{n}th" for n in range(4, count + 1)])[: count - 1]]
    axes.set_xticks(ticks, names * len(layers), fontsize=9)
    for layer in layers:
        axes.text(
            int(layer) * (count + 1) + (count - 1) / 2,
            -0.1,
            f"block {int(layer) + 1}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=10,
        )
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of right links")
    axes.set_xlabel("heads, sorted within their block", labelpad=18)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    return figure


@themed
def plot_worth(worth: Dataset) -> Figure:
    """Draw the share of sequences that are wholly right, by what the decoder reads: (a) reversal, (b) numbers.

    Args:
        worth: the result ``worth``.
    """
    figure, axes = subplots(2, 1, height=2.8)
    labels = {"reversal": "map and reverse", "numbers": "number words"}
    for panel, (task, text) in zip(axes, labels.items(), strict=True):
        groups = {
            name: worth.whole.sel(task=task, reads=reads).values
            for reads, (name, _) in _READS.items()
        }
        seed_strip(
            panel,
            groups,
            label=f"{text}: share of sequences wholly right",
            concepts=dict(_READS.values()),
        )
        panel.set_xlim(-0.02, 1.02)
    panel_letters(axes)
    return figure


@themed
def plot_lengths(worth: Dataset) -> Figure:
    """Draw the share of reversals that are wholly right by their length, a line for each seed.

    Args:
        worth: the result ``worth``.
    """
    figure, axes = subplots(height=3.4)
    x = worth.length.values
    for reads in ("all", "mean", "last", "none"):
        name, concept = _READS[reads]
        values = worth.by_length.sel(reads=reads)
        for row in values.values:
            axes.plot(x, row, color=COLOURS[concept], linewidth=0.8, alpha=0.4)
        mean = values.mean("seed").values
        axes.plot(x, mean, color=COLOURS[concept], linewidth=2.6, marker="o", markersize=5)
        axes.text(x[-1] + 0.15, mean[-1], name, color=COLOURS[concept], va="center", fontsize=10)
    axes.set_xticks(x)
    axes.set_xlim(x[0] - 0.2, x[-1] + 2.0)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("tokens of the source")
    axes.set_ylabel("share of sequences\nwholly right")
    return figure


@themed
def plot_recipe(recipe: Dataset) -> Figure:
    """Draw the recipe and its ablations on numbers not trained on: (a) cross-entropy, (b) whole numbers.

    Args:
        recipe: the result ``recipe``.
    """
    figure, axes = subplots(2, 1, height=2.5)
    panels = (
        ("loss", "cross-entropy, in nats a token"),
        ("whole", "share of numbers wholly right"),
    )
    for panel, (metric, label) in zip(axes, panels, strict=True):
        groups = {
            name: recipe[metric].sel(recipe=arm).values for arm, (name, _) in _RECIPES.items()
        }
        seed_strip(panel, groups, label=label, concepts=dict(_RECIPES.values()))
    panel_letters(axes)
    return figure


@themed
def plot_directions(fill: Dataset, classify: Dataset) -> Figure:
    """Draw (a) filling in by what may be seen, with the best guess's accuracy, (b) which comes again sooner.

    Args:
        fill: the result ``fill``.
        classify: the result ``classify``.
    """
    figure, axes = subplots(2, 1, height=2.6)
    groups = {name: fill.accuracy.sel(side=side).values for side, (name, _) in _SIDES.items()}
    seed_strip(axes[0], groups, label="accuracy at hidden tokens", concepts=dict(_SIDES.values()))
    rows = axes[0].get_yticks()
    for row, side in zip(rows, _SIDES, strict=True):
        best = float(fill.ideal.sel(side=side).mean())
        axes[0].plot([best, best], [row - 0.35, row + 0.35], color=theme().ink, linewidth=1.6)
        axes[0].text(best + 0.008, row, "best guess", fontsize=9, va="center")
    axes[0].set_xlim(0.15, 0.75)
    groups, concepts = {}, {}
    for readout, text in (("last", "last state"), ("mean", "mean of all")):
        for way, (words, concept) in {
            "both": ("both ways", "residual"),
            "back": ("back alone", "attention"),
        }.items():
            name = f"{text}, {words}"
            groups[name] = classify.accuracy.sel(direction=way, readout=readout).values
            concepts[name] = concept
    seed_strip(
        axes[1],
        groups,
        label="accuracy: which comes again sooner",
        concepts=concepts,
        reference=0.5,
    )
    panel_letters(axes)
    return figure
