"""Figures of the chapter on encoder and decoder: results in, drawings out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from measured_transformer.tasks.number_alignment import aligned_words
from measured_transformer.tasks.numbers import number_words
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import DataArray, Dataset

from measured_book.figures.diagrams import box, canvas, wire
from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots
from measured_book.figures.tables import Table

_READS = {
    "all": ("all states", "residual"),
    "mean": ("their mean", "ffn"),
    "last": ("the last state", "norm"),
    "none": ("nothing", "none"),
    "taken away": ("taken away\nafter training", "attention"),
}
"""What a decoder reads -> its name in figures and what it is drawn as."""
_SIDES = {
    "both": ("both sides", "residual"),
    "left": ("left alone", "attention"),
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
def plot_alignment(examples: Dataset, example: int = 1) -> Figure:
    """Draw all heads of cross-attention for one number, the right cells framed.

    Args:
        examples: the result ``examples``.
        example: which of the numbers.
    """
    figure, axes = subplots(2, 2, height=3.35, sharex=True, sharey=True)
    found = examples.isel(seed=0, example=example, layer=0)
    for head, panel in enumerate(axes.ravel()):
        _map(panel, found.pattern.isel(head=head), int(found.number))
        panel.set_title(f"({'abcd'[head]}) head {head + 1}", loc="left", fontsize=11)
    for panel in axes[1]:
        panel.set_xlabel("source word")
    for panel in axes[:, 0]:
        panel.set_ylabel("word to be written")
    return figure


@themed
def plot_heads(alignment: Dataset) -> Figure:
    """Draw each head's share of right links, sorted, trained and untrained, a line for each seed.

    Args:
        alignment: the result ``alignment``.
    """
    figure, axes = subplots(height=3.4)
    count = alignment.sizes["head"]
    for model, concept, marker in (("trained", "attention", "s"), ("untrained", "none", "o")):
        values = np.sort(alignment.accuracy.sel(model=model).isel(layer=0).values, axis=1)[:, ::-1]
        for row in values:
            axes.plot(
                range(count),
                row,
                marker=marker,
                color=COLOURS[concept],
                alpha=0.55,
                linewidth=0.9,
                markersize=5,
                mew=0,
            )
        axes.text(
            count - 0.88,
            float(values[:, -1].mean()),
            model,
            color=COLOURS[concept],
            va="center",
            fontsize=10,
        )
    diagonal = float(alignment.diagonal.mean())
    axes.axhline(diagonal, color=theme().ink, linewidth=1, linestyle="--")
    axes.text(count - 0.88, diagonal + 0.015, "same place", ha="left", va="bottom", fontsize=9)
    axes.set_xticks(range(count), ["best head", "second", "third", "fourth"][:count])
    axes.set_xlim(-0.2, count - 0.1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("heads of a model, sorted")
    axes.set_ylabel("share of right links")
    return figure


@themed
def plot_worth(worth: Dataset) -> Figure:
    """Draw the share of sequences that are entirely right, by what the decoder reads: reversal, numbers.

    Args:
        worth: the result ``worth``.
    """
    figure, axes = subplots(2, 1, height=2.5, gridspec_kw={"height_ratios": (5, 3)})
    panels = (("reversal", "reads", "map and reverse"), ("numbers", "fewer", "number words"))
    for panel, (variable, axis, text) in zip(axes, panels, strict=True):
        names = [str(name) for name in worth[axis].values]
        groups = {_READS[name][0]: worth[variable].sel({axis: name}).values for name in names}
        seed_strip(
            panel,
            groups,
            label=f"{text}: share of sequences entirely right",
            concepts=dict(_READS[name] for name in names),
        )
        panel.set_xlim(-0.03, 1.03)
    panel_letters(axes)
    return figure


@themed
def plot_lengths(worth: Dataset) -> Figure:
    """Draw the share of reversals that are entirely right by their length, a line for each seed.

    Args:
        worth: the result ``worth``.
    """
    figure, axes = subplots(height=3.4)
    x = worth.length.values
    places = {
        "all": (x[-1], 0.74, "right"),
        "mean": (x[0] + 0.75, 0.58, "left"),
        "last": (x[0] + 0.02, 0.32, "left"),
        "none": (x[0] + 0.1, 0.06, "left"),
    }
    for reads in ("all", "mean", "last", "none"):
        name, concept = _READS[reads]
        values = worth.by_length.sel(reads=reads)
        for row in values.values:
            axes.plot(x, row, color=COLOURS[concept], linewidth=0.8, alpha=0.4)
        mean = values.mean("seed").values
        axes.plot(x, mean, color=COLOURS[concept], linewidth=2.6, marker="o", markersize=5)
        at, below, side = places[reads]
        axes.text(at, below, name, color=COLOURS[concept], ha=side, va="center", fontsize=10)
    axes.set_xticks(x)
    axes.set_xlim(x[0] - 0.2, x[-1] + 0.3)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("tokens of the source")
    axes.set_ylabel("share of sequences\nentirely right")
    return figure


@themed
def plot_directions(fill: Dataset, classify: Dataset) -> Figure:
    """Draw (a) filling in by what may be seen, with the best guess's accuracy, (b) which comes again sooner.

    Args:
        fill: the result ``fill``.
        classify: the result ``classify``.
    """
    figure, axes = subplots(2, 1, height=2.0)
    groups = {name: fill.accuracy.sel(side=side).values for side, (name, _) in _SIDES.items()}
    seed_strip(axes[0], groups, label="accuracy at hidden tokens", concepts=dict(_SIDES.values()))
    for row, side in zip(axes[0].get_yticks(), _SIDES, strict=True):
        best = float(fill.ideal.sel(side=side).mean())
        axes[0].plot([best, best], [row - 0.35, row + 0.35], color=theme().ink, linewidth=1.6)
        axes[0].text(best + 0.01, row - 0.3, "best guess", fontsize=9, va="center")
    groups = {
        "both ways": classify.accuracy.sel(way="both").values,
        "back alone": classify.accuracy.sel(way="back").values,
    }
    concepts = {"both ways": "residual", "back alone": "attention"}
    label = "accuracy: which comes again sooner"
    seed_strip(axes[1], groups, label=label, concepts=concepts, reference=0.5)
    for panel in axes:
        panel.set_xlim(0.35, 1.0)
    panel_letters(axes)
    return figure


@themed
def plot_beams(captions: Dataset) -> Figure:
    """Draw (a) BLEU, (b) the length of translations over the references', by the number of beams.

    Args:
        captions: the result ``captions``.
    """
    figure, axes = subplots(2, 1, height=2.4, sharex=True)
    x = np.arange(captions.beams.size)
    ways = {0.0: ("log-probability alone", "attention"), 1.0: ("divided by the length", "residual")}
    panels = ((100 * captions.bleu, "BLEU"), (captions.length, "length, over the\nreferences'"))
    for panel, (values, label) in zip(axes, panels, strict=True):
        for penalty, (name, concept) in ways.items():
            rows = values.sel(penalty=penalty).transpose("seed", "beams").values
            seed_lines(panel, x, rows, concept=concept, label="")
            panel.text(
                x[-1] + 0.06,
                rows.mean(0)[-1],
                name.replace(" ", "\n", 1),
                color=COLOURS[concept],
                va="center",
                fontsize=9,
            )
        panel.set_ylabel(label)
        panel.set_xlim(-0.1, x[-1] + 0.75)
    axes[1].plot([x[0], x[-1]], [1.0, 1.0], color=theme().ink, linewidth=1, linestyle="--")
    axes[1].set_xticks(x, ["1 (greedy)", *(str(int(n)) for n in captions.beams.values[1:])])
    axes[1].set_xlabel("beams")
    panel_letters(axes)
    return figure


def caption_table(examples: Dataset) -> Table:
    """Captions in English, in a person's German, and in that of a model with four beams.

    Args:
        examples: the result ``caption_examples``.
    """
    kept = examples.isel(seed=0)
    texts = [
        ["".join(chr(int(code)) for code in row if code) for row in kept[name].values]
        for name in ("source", "reference", "beam")
    ]
    header = ("English", "a person's German", "the model's German")
    return Table(header, tuple(zip(*texts, strict=True)), languages=("", "de", "de"))
