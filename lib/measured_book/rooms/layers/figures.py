"""Figures about what changes from layer to layer: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

Array = Float[np.ndarray, "..."]

_KINDS = {
    "sentences": ("attention", "sentences"),
    "shuffled": ("ffn", "shuffled words"),
    "untrained": ("none", "untrained"),
}
"""The colour and the name of each kind of model in all figures of the chapter."""
_THIRDS = {
    "layers 1 to 4": ("rotary", "s"),
    "layers 5 to 8": ("learned", "D"),
    "layers 9 to 12": ("sinusoidal", "o"),
}


def _name(axes: Axes, text: str, at: tuple[float, float], concept: str, **how: str) -> None:
    """Write a line's name beside it, in its colour."""
    axes.text(*at, text, color=COLOURS[concept], fontsize=10.5, **how)  # type: ignore[arg-type]


def _seeds_of(values: DataArray, along: str) -> Array:
    return np.asarray(values.transpose("seed", along).values, dtype=float)


@themed
def plot_rows_of_weights(rows: Mapping[str, Sequence[float]], notes: Mapping[str, str]) -> Figure:
    """Draw a few rows of attention as bars over the tokens, the one that looks at the right, with a note each.

    Args:
        rows: name -> weights on the tokens, in their order.
        notes: name -> what is written beside the row.
    """
    figure, axes = subplots(len(rows), 1, height=1.1, sharex=True)
    for panel, (name, weights) in zip(axes, rows.items(), strict=True):
        n = len(weights)
        panel.bar(
            range(n),
            weights,
            color=tint("attention", 0.5),
            edgecolor=COLOURS["attention"],
            width=0.8,
        )
        panel.set_ylim(0, 1.12)
        panel.set_yticks([0, 1])
        panel.set_ylabel("weight")
        panel.grid(visible=False)
        panel.text(0.0, 1.02, f"{name}: {notes[name]}", transform=panel.transAxes, fontsize=11)
    axes[-1].set_xticks(range(n), [f"{i - n + 1}" if i < n - 1 else "own" for i in range(n)])
    axes[-1].set_xlabel("token looked at")
    return figure


@themed
def plot_looks(looking: Dataset, even: float) -> Figure:
    """Draw how far each layer looks, and how evenly, in the three kinds of model, with every seed.

    Args:
        looking: the result ``looking``.
        even: the distance of a head that attends evenly.
    """
    figure, axes = subplots(2, 1, height=3.1, sharex=True)
    layers = looking.layer.values
    for panel, values in zip(axes, (looking.distance, looking.entropy), strict=True):
        for kind, (concept, _) in _KINDS.items():
            rows = _seeds_of(values.sel(kind=kind), "layer")
            seed_lines(panel, layers, rows, concept=concept, marker_every=1)
    axes[0].axhline(even, color=theme().ink, linestyle="--", linewidth=1)
    axes[0].text(
        float(layers[-1]), even + 0.45, "dashed: even attention", ha="right", fontsize=10.5
    )
    axes[0].set_ylabel("distance, positions")
    axes[0].set_ylim(1, 7)
    axes[1].set_ylabel("normalised entropy")
    axes[1].set_ylim(0, 1.03)
    axes[1].set_xticks(layers)
    axes[1].set_xlabel("layer")
    _name(axes[0], "untrained", (1.0, 6.45), "none")
    _name(axes[0], "sentences", (2.6, 5.0), "attention", ha="right")
    _name(axes[0], "shuffled words", (4.7, 1.75), "ffn")
    _name(axes[1], "untrained", (1.0, 0.94), "none")
    _name(axes[1], "shuffled words", (6.0, 0.78), "ffn", ha="right")
    _name(axes[1], "sentences", (8.0, 0.13), "attention")
    panel_letters(axes)
    return figure


@themed
def plot_heads(doing: Dataset, even: float, *, floor: float = 1e-4) -> Figure:
    """Draw every head of every seed: how far it looks, and what it costs to make it look evenly.

    Args:
        doing: the result ``doing``.
        even: the distance of a head that attends evenly.
        floor: smallest rise that is drawn; smaller ones lie on the edge.
    """
    figure, axes = subplots(2, 1, height=3.3, sharex=True, sharey=True)
    for panel, kind in zip(axes, ("sentences", "shuffled"), strict=True):
        for (name, (concept, marker)), first in zip(_THIRDS.items(), (1, 5, 9), strict=True):
            part = doing.sel(kind=kind, layer=slice(first, first + 3))
            panel.plot(
                part.distance.values.ravel(),
                np.maximum(part.head_rise.transpose(*part.distance.dims).values.ravel(), floor),
                marker=marker,
                linestyle="",
                color=COLOURS[concept],
                alpha=0.6,
                markersize=4.5,
                mew=0,
                label=name,
            )
        panel.axvline(even, color=theme().ink, linestyle="--", linewidth=1)
        panel.set_yscale("log")
        panel.set_ylim(floor * 0.8, 2)
        panel.set_ylabel("rise of the loss, nats")
        panel.text(
            0.02, 0.95, _KINDS[kind][1], transform=panel.transAxes, va="top", fontsize=11,
            color=COLOURS[_KINDS[kind][0]],
        )  # fmt: skip
    axes[0].text(even + 0.1, 1.2, "even", va="top", fontsize=10.5)
    legend_above(axes[0])
    axes[1].set_xlabel("distance that the head looks, positions")
    panel_letters(axes)
    return figure


@themed
def plot_missed(doing: Dataset, *, floor: float = 1e-4) -> Figure:
    """Draw the rise of the loss when a layer attends evenly, and when all it writes is replaced by its mean.

    Args:
        doing: the result ``doing``.
        floor: smallest rise that is drawn; smaller ones lie on the edge.
    """
    figure, axes = subplots(2, 1, height=2.8, sharex=True, sharey=True)
    layers = doing.layer.values
    for panel, values in zip(axes, (doing.even, doing.without), strict=True):
        for kind in ("sentences", "shuffled"):
            rows = np.maximum(_seeds_of(values.sel(kind=kind), "layer"), floor)
            concept, name = _KINDS[kind]
            seed_lines(panel, layers, rows, concept=concept, label=name, marker_every=1)
        panel.set_yscale("log")
        panel.set_ylabel("rise of the loss, nats")
    legend_above(axes[0])
    axes[1].set_xticks(layers)
    axes[1].set_xlabel("layer")
    panel_letters(axes)
    return figure


@themed
def plot_known(knowing: Dataset) -> Figure:
    """Draw what probes and their controls reach by depth in models of sentences, a panel for each property.

    Args:
        knowing: the result ``knowing``.
    """
    figure, axes = subplots(2, 1, height=2.75, sharex=True, sharey=True)
    depth = knowing.state.values
    for panel, what in zip(axes, ("agreement", "pronouns"), strict=True):
        found = knowing.sel(what=what)
        for values, concept, name, at in (
            (found.accuracy.sel(kind="sentences"), "attention", "probe", (8.0, 0.87)),
            (found.accuracy.sel(kind="shuffled"), "ffn", "probe, shuffled words", (8.0, 0.72)),
            (found.control.sel(kind="sentences"), "residual", "control", (8.0, 0.62)),
        ):
            seed_lines(panel, depth, _seeds_of(values, "state"), concept=concept, marker_every=1)
            if what == "agreement":
                _name(panel, name, at, concept)
        panel.axhline(float(found.chance.mean()), color=theme().ink, linestyle="--", linewidth=1)
        panel.set_ylim(0.3, 1.03)
        panel.set_ylabel(f"accuracy, {what}")
    axes[1].set_xticks(depth)
    axes[1].set_xlabel("layers passed")
    panel_letters(axes)
    return figure


@themed
def plot_read_early(doing: Dataset, declared: float) -> Figure:
    """Draw how early the final prediction can be read from the stream of models of sentences.

    Args:
        doing: the result ``doing``.
        declared: the share that was asked for before the last third.
    """
    figure, axes = subplots(height=3.2)
    depth = doing.state.values
    found = doing.sel(kind="sentences")
    for values, concept, name, at in (
        (found.word_kinds, "attention", "same kind of word", (3.2, 0.93)),
        (found.words, "residual", "same word", (6.0, 0.42)),
    ):
        seed_lines(axes, depth, _seeds_of(values, "state"), concept=concept, marker_every=1)
        _name(axes, name, at, concept, ha="right" if concept == "attention" else "left")
    axes.axvspan(8, 12, color=tint("norm", 0.22), lw=0, zorder=0)
    axes.plot([8, 12], [declared, declared], color=theme().ink, linestyle="--", linewidth=1)
    axes.text(10.0, 0.05, "last third", ha="center", fontsize=10.5)
    axes.set_xticks(depth)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("layers passed when the prediction is read")
    axes.set_ylabel("share of positions")
    return figure


@themed
def plot_made_by_training(panels: Mapping[str, DataArray]) -> Figure:
    """Draw a statistic of the order of layers in each kind of model, a panel each and a dot per seed.

    Args:
        panels: label of the axis -> values over kind and seed.
    """
    figure, axes = subplots(len(panels), 1, height=1.85)
    for panel, (label, values) in zip(axes, panels.items(), strict=True):
        rows = {name: values.sel(kind=kind).values for kind, (_, name) in _KINDS.items()}
        concepts = {name: concept for concept, name in _KINDS.values()}
        seed_strip(panel, rows, label=label, concepts=concepts, reference=0.0)
        panel.xaxis.set_major_locator(MaxNLocator(6))
    panel_letters(axes)
    return figure
