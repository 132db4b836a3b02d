"""Figures about what changes from layer to layer. Arrays have their seeds first, then layers or depths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]

MODELS = {"trained": "attention", "shuffled words": "ffn", "untrained": "none"}
"""The colour of each kind of model in all figures of the chapter."""


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
        panel.grid(visible=False)
        panel.text(0.0, 1.02, f"{name}: {notes[name]}", transform=panel.transAxes, fontsize=11)
    axes[-1].set_xticks(range(n), [f"{i - n + 1}" if i < n - 1 else "own" for i in range(n)])
    axes[-1].set_xlabel("token looked at")
    return figure


@themed
def plot_by_layer(
    panels: Mapping[str, Mapping[str, Array]],
    references: Mapping[str, tuple[float, str]],
    null: Mapping[str, Array] | None = None,
) -> Figure:
    """Draw statistics over the layers, a panel each, with every seed of every kind of model.

    Args:
        panels: label of the axis -> kind of model, a key of `MODELS` -> (seed, layer).
        references: label of the axis -> a value to mark and its name.
        null: label of the axis -> (seed, layer) of models that attend at random.
    """
    figure, axes = subplots(len(panels), 1, height=2.75, sharex=True)
    for panel, (label, kinds) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for name, rows in kinds.items():
            layers = np.arange(1, rows.shape[1] + 1)
            seed_lines(panel, layers, rows, concept=MODELS[name], label=name)
        if null is not None and label in null:
            seed_lines(panel, layers, null[label], concept="residual", label="null")
        if label in references:
            value, name = references[label]
            panel.axhline(value, color=theme().ink, linestyle="--", linewidth=1)
            panel.annotate(
                name, (0, value), (4, -3), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="top", fontsize=11,
            )  # fmt: skip
        panel.set_ylabel(label)
        panel.set_xticks(layers)
    legend_above(np.atleast_1d(axes)[0], columns=2)
    np.atleast_1d(axes)[-1].set_xlabel("layer")
    if len(panels) > 1:
        panel_letters(axes)
    return figure


@themed
def plot_probes(
    panels: Mapping[str, Mapping[str, Array]], *, chance: Mapping[str, float]
) -> Figure:
    """Draw what probes and their controls reach by depth, a panel for each property, with every seed.

    Args:
        panels: name of the property -> `probe` and `control` -> (seed, state).
        chance: name of the property -> the share of its most frequent label.
    """
    figure, axes = subplots(len(panels), 1, height=2.75, sharex=True)
    for panel, (name, lines) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for what, concept in (("probe", "attention"), ("control", "residual")):
            depth = np.arange(lines[what].shape[-1])
            seed_lines(panel, depth, lines[what], concept=concept, label=what)
        panel.axhline(chance[name], color=theme().ink, linestyle="--", linewidth=1)
        panel.set_ylim(0.3, 1.03)
        panel.set_ylabel(f"accuracy, {name}")
        panel.set_xticks(depth)
        legend_above(panel, columns=2)
    np.atleast_1d(axes)[-1].set_xlabel("blocks passed")
    panel_letters(axes)
    return figure


@themed
def plot_centres(found: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw the centres of gravity of two properties in each kind of model; the middle third is tinted.

    Args:
        found: kind of model, a key of `MODELS` -> property -> one a seed. Dots of one seed are joined.
    """
    height = 0.9 * sum(map(len, found.values())) * 0.55 + 1.0
    figure, axes = subplots(height=height)
    axes.axvspan(1 / 3, 2 / 3, color=tint("norm", 0.22), lw=0, zorder=0)
    rows: dict[str, Array] = {}
    concepts: dict[str, str] = {}
    for kind, properties in found.items():
        for name, values in properties.items():
            rows[f"{name}, {kind}"] = values
            concepts[f"{name}, {kind}"] = MODELS[kind]
    place = 0
    for properties in found.values():
        first, second = properties.values()
        for one, other in zip(first, second, strict=True):
            axes.plot(
                [one, other], [place, place + 1], color=theme().faint, linewidth=1.2, zorder=1
            )
        place += 2
    seed_strip(axes, rows, label="centre of gravity, share of the depth", concepts=concepts)
    axes.set_xlim(0, 0.75)
    return figure


@themed
def plot_passing_on(
    rise: Mapping[str, Array], agreement: Mapping[str, Array], *, floor: float = 1e-3
) -> Figure:
    """Draw the rise of the loss without each layer, and how early the final prediction can be read.

    Args:
        rise: kind of model -> nats, (seed, layer).
        agreement: what is compared -> share or fraction, (seed, state).
        floor: smallest rise that is drawn; smaller ones lie on the edge.
    """
    figure, (above, below) = subplots(2, 1, height=3.0)
    for name, rows in rise.items():
        layers = np.arange(1, rows.shape[1] + 1)
        seed_lines(above, layers, np.maximum(rows, floor), concept=MODELS[name], label=name)
    above.set_yscale("log")
    above.set_ylabel("rise of the loss, nats")
    above.set_xlabel("layer whose writes are replaced by their mean")
    above.set_xticks(layers)
    _thirds(above, len(layers))
    legend_above(above)
    for (name, rows), concept in zip(agreement.items(), ("attention", "residual"), strict=False):
        depth = np.arange(rows.shape[1])
        seed_lines(below, depth, rows, concept=concept, label=name)
    below.axhline(0.9, color=theme().ink, linestyle="--", linewidth=1)
    below.axvline(len(depth) - 1 - (len(depth) - 1) / 3, color=theme().ink, linestyle=":")
    below.set_xticks(depth)
    below.set_ylim(0, 1.03)
    below.set_xlabel("blocks passed when the prediction is read")
    below.set_ylabel("share")
    legend_above(below)
    panel_letters((above, below))
    return figure


def _thirds(axes: Axes, n_layers: int) -> None:
    """Tint the last third."""
    axes.axvspan(2 * n_layers / 3 + 0.5, n_layers + 0.5, color=tint("norm", 0.22), lw=0, zorder=0)


@themed
def plot_made_by_training(panels: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw a statistic of the order of layers in each kind of model, a panel each and a dot a seed.

    Args:
        panels: label of the axis -> kind of model, a key of `MODELS` -> one a seed.
    """
    figure, axes = subplots(len(panels), 1, height=1.85)
    for panel, (label, kinds) in zip(axes, panels.items(), strict=True):
        concepts = {kind: MODELS[kind] for kind in kinds}
        seed_strip(panel, kinds, label=label, concepts=concepts, reference=0.0)
    panel_letters(axes)
    return figure
