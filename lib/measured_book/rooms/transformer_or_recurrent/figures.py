"""Figures of the chapter on Transformers and recurrent networks: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_lines, subplots

_CONCEPTS = {
    "sheet": "norm",
    "Transformer": "attention",
    "LSTM": "residual",
    "open LSTM": "sinusoidal",
    "linear": "ffn",
    "linear attention": "learned",
    "hybrid": "alibi",
}
_NAMES = {
    "sheet": "post-norm Transformer",
    "Transformer": "Transformer",
    "LSTM": "LSTM",
    "open LSTM": "LSTM, open gates",
    "linear": "linear recurrence",
    "linear attention": "linear attention",
    "hybrid": "hybrid",
}


def _apart(values: Mapping[str, float], least: float) -> dict[str, float]:
    """Heights of labels: as near to the values as they can be without touching one another."""
    names = sorted(values, key=lambda name: values[name])
    heights: list[float] = []
    for name in names:
        heights.append(max(values[name], heights[-1] + least) if heights else values[name])
    moved = float(np.mean([values[name] for name in names]) - np.mean(heights))
    return {name: height + moved for name, height in zip(names, heights, strict=True)}


def _named(axes: Axes, x: float, ends: Mapping[str, float], least: float) -> None:
    """Write the names of lines behind their ends."""
    for name, y in _apart(ends, least).items():
        axes.text(
            x,
            y,
            _NAMES[name],
            color=COLOURS[_CONCEPTS[name]],
            va="center",
            fontsize=9,
            clip_on=False,
        )


@themed
def plot_paths(tokens: Sequence[str]) -> Figure:
    """Draw how the first token reaches the last: by one step of attention, and through a chain of states.

    Args:
        tokens: what stands in the sequence.
    """
    figure, axes = subplots(2, 1, height=1.5)
    for each in axes:
        each.set_axis_off()
        each.set_xlim(-0.8, len(tokens) - 0.2)
        each.set_ylim(-0.7, 1.6)
        for place, token in enumerate(tokens):
            _node(each, float(place), 0.0, token, "norm")
    last = float(len(tokens) - 1)
    _arrow(axes[0], (1.0, 0.28), (last, 0.28), "attention", bend=-0.22)
    for place in range(len(tokens)):
        _node(axes[1], float(place), 1.2, f"$h_{{{place + 1}}}$", "residual")
        _arrow(axes[1], (float(place), 0.28), (float(place), 0.92), "residual")
        if place:
            _arrow(axes[1], (place - 0.68, 1.2), (place - 0.32, 1.2), "residual")
    panel_letters(axes)
    return figure


def _node(axes: Axes, x: float, y: float, text: str, concept: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": tint(concept), "edgecolor": COLOURS[concept]}
    axes.text(x, y, text, ha="center", va="center", bbox=box, fontsize=11)


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    concept: str,
    *,
    bend: float = 0.0,
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=12,
            linewidth=1.8,
            color=COLOURS[concept],
            connectionstyle=f"arc3,rad={bend}",
        )
    )


@themed
def plot_chains(chains: Dataset) -> Figure:
    """Draw the longest chain of operations in a block over the length, both logarithmic.

    Args:
        chains: the result ``chains``.
    """
    figure, axes = subplots(height=3.2)
    lengths = chains.length.values
    ends = {}
    for name in chains.kind.values:
        values = chains.operations.sel(kind=name).squeeze("seed").values
        concept = _CONCEPTS[str(name)]
        axes.plot(lengths, values, "o-", color=COLOURS[concept], markersize=5)
        ends[str(name)] = float(np.log10(values[-1]))
    for name, y in _apart(ends, 0.2).items():
        axes.text(1250, 10**y, _NAMES[name], color=COLOURS[_CONCEPTS[name]], va="center")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.set_xlim(7, 9000)
    axes.set_xlabel("tokens")
    axes.set_ylabel("operations that wait\nfor one another")
    return figure


@themed
def plot_race(epochs: Dataset) -> Figure:
    """Draw perplexities over twenty epochs, (a) in validation and (b) in training, each seed faint.

    Args:
        epochs: the result ``epochs``.
    """
    figure, axes = subplots(2, 1, height=2.9, sharex=True)
    x = epochs.epoch.values
    for panel, part in zip(axes, ("validation", "training"), strict=True):
        ends = {}
        for name in epochs.kind.values:
            values = np.exp(epochs[part].sel(kind=name).transpose("seed", "epoch").values)
            seed_lines(panel, x, values, concept=_CONCEPTS[str(name)])
            ends[str(name)] = float(np.log(values[:, -1].mean()))
        found = np.exp(epochs[part].values)
        low, high = 0.75 * found.min(), 1.1 * found.max()  # room for the names of the lowest lines
        panel.set_yscale("log")
        panel.set_ylim(low, high)
        ticks = [t for t in (10, 20, 30, 40, 60, 80, 100, 150, 200) if low <= t <= high]
        panel.set_yticks(ticks, [str(t) for t in ticks])
        panel.minorticks_off()
        span = float(np.log(panel.get_ylim()[1] / panel.get_ylim()[0]))
        for name, y in _apart(ends, 0.085 * span).items():
            colour = COLOURS[_CONCEPTS[name]]
            panel.text(20.6, float(np.exp(y)), _NAMES[name], color=colour, va="center", fontsize=9)
        panel.set_ylabel(f"perplexity,\n{part}")
        panel.set_xlim(0.5, 27.5)
        panel.set_xticks([1, 5, 10, 15, 20])
    axes[1].set_xlabel("epochs")
    panel_letters(axes)
    return figure


@themed
def plot_rates(field: Dataset) -> Figure:
    """Draw the perplexity after one epoch over the learning rate, each seed faint.

    Args:
        field: the result ``field``.
    """
    figure, axes = subplots(height=3.4)
    rates, ends = field.rate.values, {}
    for name in field.kind.values:
        values = np.exp(field.one.sel(kind=name).transpose("seed", "rate").values)
        seed_lines(axes, rates, values, concept=_CONCEPTS[str(name)])
        ends[str(name)] = float(values[:, -1].mean())
    axes.set_xscale("log")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set_xlim(rates[0] * 0.9, rates[-1] * 3.4)
    span = axes.get_ylim()[1] - axes.get_ylim()[0]
    _named(axes, rates[-1] * 1.1, ends, 0.075 * span)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("perplexity after one epoch")
    return figure


@themed
def plot_depth(depth: Dataset) -> Figure:
    """Draw the loss over the number of blocks, (a) in validation and (b) in training, each seed faint.

    Args:
        depth: the result ``depth``.
    """
    figure, axes = subplots(2, 1, height=2.6, sharex=True)
    x = depth.blocks.values
    for panel, part in zip(axes, ("validation", "training"), strict=True):
        ends = {}
        for name in depth.placed.values:
            values = depth[part].sel(placed=name).transpose("seed", "blocks").values
            seed_lines(panel, x, values, concept=_CONCEPTS[str(name)])
            ends[str(name)] = float(values[:, -1].mean())
        span = panel.get_ylim()[1] - panel.get_ylim()[0]
        for name, y in _apart(ends, 0.2 * span).items():
            told = {"sheet": "post-norm,\nno warm-up", "Transformer": "pre-norm,\nwarm-up"}[name]
            panel.text(6.12, y, told, color=COLOURS[_CONCEPTS[name]], va="center", fontsize=9)
        panel.set_ylabel(f"nats per word,\n{part}")
        panel.set_xlim(0.8, 7.6)
        panel.set_xticks(x, [str(n) for n in x])
    axes[1].set_xlabel("blocks")
    panel_letters(axes)
    return figure


@themed
def plot_influence(influence: Dataset) -> Figure:
    """Draw how strongly the last logits depend on a token over how far back it stands, both logarithmic.

    Args:
        influence: the result ``influence``.
    """
    figure, axes = subplots(height=3.2)
    x, ends = influence.distance.values, {}
    for name in influence.reader.values:
        values = influence.influence.sel(reader=name).transpose("seed", "distance").values
        seed_lines(axes, x, values, concept=_CONCEPTS[str(name)])
        ends[str(name)] = float(np.log10(values[:, -1].mean()))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(x, [str(n) for n in x])
    axes.set_xlim(0.9, 420)
    for name, y in _apart(ends, 0.4).items():
        axes.text(75, 10**y, _NAMES[name], color=COLOURS[_CONCEPTS[name]], va="center", fontsize=9)
    axes.set_xlabel("tokens back")
    axes.set_ylabel("length of the gradient")
    return figure


@themed
def plot_far(far: Dataset, quiet: Dataset) -> Figure:
    """Draw the share of right answers by gap (a), during training (b), and over silent fillers (c).

    Args:
        far, quiet: the results of these names.
    """
    figure, axes = subplots(3, 1, height=2.4)
    last = int(far.step.values[-1])
    panels = (
        (far.accuracy, "gap", 70.0, "fillers between the pairs and the questions"),
        (far.course, "step", last * 1.02, "steps of training, fillers that interfere"),
        (quiet.course, "step", last * 1.02, "steps of training, one filler repeated"),
    )
    for panel, (values, axis, behind, label) in zip(axes, panels, strict=True):
        ends = {}
        for name in values.reader.values:
            lines = values.sel(reader=name).transpose("seed", axis).values
            seed_lines(panel, values[axis].values, lines, concept=_CONCEPTS[str(name)])
            ends[str(name)] = float(lines[:, -1].mean())
        _names_and_chance(panel, behind, ends, 1 / 6, 0.13)
        panel.set_xlabel(label)
        panel.set_ylabel("right answers")
    axes[0].set_xscale("log", base=2)
    axes[0].set_xticks(far.gap.values, [str(n) for n in far.gap.values])
    axes[0].set_xlim(3.7, 190)
    for panel in axes[1:]:
        panel.set_xlim(last / 15, last * 1.4)
        panel.set_xticks(list(range(100, last + 1, 100)))
    panel_letters(axes)
    return figure


def _names_and_chance(
    axes: Axes, x: float, ends: Mapping[str, float], chance: float, least: float = 0.1
) -> None:
    axes.set_ylim(0, 1.08)
    axes.axhline(chance, color=theme().ink, linewidth=1, linestyle=":")
    _named(axes, x, ends, least)


@themed
def plot_fails(recall: Dataset, parity: Dataset) -> Figure:
    """Draw (a) recall over the number of pairs, and (b) running parity over the position, each seed faint.

    Args:
        recall, parity: the results of these names.
    """
    figure, axes = subplots(2, 1, height=3.1)
    x, ends = recall.pairs.values, {}
    for name in recall.memory.values:
        values = recall.accuracy.sel(memory=name).transpose("seed", "pairs").values
        seed_lines(axes[0], x, values, concept=_CONCEPTS[str(name)])
        ends[str(name)] = float(values[:, -1].mean())
    _names_and_chance(axes[0], 16.4, ends, 1 / 8)
    axes[0].set_xticks(x, [str(n) for n in x])
    axes[0].set_xlim(3.6, 21.5)
    axes[0].set_xlabel("pairs to keep apart")
    axes[0].set_ylabel("right answers")
    position, ends = parity.position.values, {}
    for name in parity.counter.values:
        values = parity.accuracy.sel(counter=name).transpose("seed", "position").values
        seed_lines(axes[1], position, values, concept=_CONCEPTS[str(name)], marker_every=8)
        ends[str(name)] = float(values[:, -8:].mean())
    _names_and_chance(axes[1], 65.5, ends, 1 / 2)
    axes[1].axvline(32.5, color=theme().ink, linewidth=0.8, linestyle="--")
    axes[1].text(32, 0.06, "trained on", ha="right", fontsize=9)
    axes[1].text(33, 0.06, "longer than ever seen", ha="left", fontsize=9)
    axes[1].set_xlim(0, 88)
    axes[1].set_xticks([1, 16, 32, 48, 64])
    axes[1].set_xlabel("bits so far")
    axes[1].set_ylabel("right parities")
    panel_letters(axes)
    return figure
