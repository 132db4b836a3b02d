"""Figures about the roles of heads: small maps, where heads lie between two statistics, tables of counts.

What is mirrored has the colour of attention throughout; the other classes have colours of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from measured_transformer.evidence.statistics import proportion
from measured_transformer.figures.plots import legend_above, panel_letters, seed_strip, subplots
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]

CLASS_CONCEPTS = {
    "mirror": "attention",
    "content": "ffn",
    "positional": "residual",
    "self": "norm",
    "global": "learned",
    "several": "rotary",
    "none": "none",
}
"""The colour of each class in `plot_classes`; `several` are the heads that are in more than one."""
_ARCHITECTURES = ("attention", "residual", "ffn", "norm")


@themed
def plot_handmade_maps(
    maps: Mapping[str, Array], place_share: Sequence[float], entropy: Sequence[float]
) -> Figure:
    """Draw one small map a head, with the share that the place explains and the entropy below it.

    Args:
        maps: name of the head -> (query, key).
        place_share, entropy: one number a head, in the same order.
    """
    columns = 3
    figure, axes = subplots(-(-len(maps) // columns), columns, height=2.75)
    for panel in axes.flat[len(maps) :]:
        panel.set_visible(False)
    described = zip(axes.flat, maps.items(), place_share, entropy, strict=False)
    for panel, (name, each), share, even in described:
        panel.imshow(each, cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        panel.grid(visible=False)
        panel.set_xticks([])
        panel.set_yticks([])
        panel.set_title(name)
        panel.set_xlabel(f"place {share:.2f}, entropy {even:.2f}", fontsize=11)
    axes.flat[0].set_ylabel("query")
    return figure


@themed
def plot_between_two_numbers(
    share: Mapping[str, Array], mass: Mapping[str, Array], *, content_below: float = 0.5
) -> Figure:
    """Draw each head of each seed by what the place explains of it and how much it looks at the mirror image.

    Args:
        share, mass: `untrained`, `layer 0`, `layer 1` -> (seed, head).
        content_below: heads with a smaller share are of the class content, an area that is tinted.
    """
    figure, axes = subplots(height=4.0)
    axes.axvspan(-0.03, content_below, color=tint("ffn", 0.14), zorder=0, lw=0)
    axes.text(0.0, 0.97, "class content", color=theme().ink, va="top", fontsize=11)
    for (name, across), marker, concept in zip(
        share.items(), ("x", "o", "D"), ("none", "residual", "attention"), strict=True
    ):
        axes.plot(
            np.ravel(across),
            np.ravel(mass[name]),
            marker,
            color=COLOURS[concept],
            alpha=0.6,
            markersize=6,
            mew=1.5 if marker == "x" else 0,
            label=name,
        )
    axes.set_xlim(-0.03, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("share of the pattern that the place explains")
    axes.set_ylabel("weight on the mirrored position")
    legend_above(axes)
    return figure


@themed
def plot_found_rows(
    counts: Mapping[str, Mapping[str, Sequence[int]]],
    trials: Mapping[str, int],
    untrained: Mapping[str, Mapping[str, int]],
) -> Figure:
    """Draw how many of the seeds have each row of a table, with exact intervals.

    Args:
        counts: architecture -> row -> numbers of seeds, with every threshold at three quarters, as declared
            and at five quarters.
        trials: number of seeds of each architecture.
        untrained: the same, as declared, before training.
    """
    figure, axes = subplots(height=0.95 * len(next(iter(counts.values()))) + 0.9)
    names = list(next(iter(counts.values())))
    step = 0.8 / len(counts)
    axes.axvline(0.5, color=theme().ink, linestyle="--", linewidth=1)
    for place, (architecture, found) in enumerate(counts.items()):
        colour, seeds = COLOURS[_ARCHITECTURES[place]], trials[architecture]
        for row, name in enumerate(names):
            height = row + (place - (len(counts) - 1) / 2) * step
            moved = np.array(found[name]) / seeds
            low, high = proportion(int(found[name][1]), seeds).interval
            axes.plot([low, high], [height] * 2, color=theme().ink, linewidth=1.4, zorder=2)
            axes.plot(
                moved[[0, 2]], [height] * 2, "|", color=colour, markersize=13, mew=2.2, zorder=3
            )
            axes.plot(
                moved[1],
                height,
                "oDs^"[place],
                color=colour,
                mec=theme().ink,
                markersize=8,
                zorder=4,
                label=architecture if row == 0 else "_nolegend_",
            )
            axes.plot(
                untrained[architecture][name] / seeds,
                height,
                "x",
                color=COLOURS["none"],
                markersize=7,
                mew=1.8,
                zorder=5,
                label="untrained" if row == place == 0 else "_nolegend_",
            )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-0.04, 1.04)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of seeds whose model has it")
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] == "untrained")
    axes.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        borderaxespad=0.2,
    )
    return figure


@themed
def plot_classes(models: Mapping[str, Sequence[Sequence[str]]], n_heads: int) -> Figure:
    """Draw the class of every head: a row for each seed, a column for each head, layer beside layer.

    Args:
        models: name of the panel -> for each seed the classes of all heads, layer by layer.
        n_heads: heads in a layer.
    """
    names = list(models)
    figure, axes = subplots(1, len(names), height=4.3, sharey=True)
    for panel, name in zip(np.atleast_1d(axes), names, strict=True):
        _class_grid(panel, models[name], n_heads)
        panel.set_title(name, fontsize=12)
    first = np.atleast_1d(axes)[0]
    first.set_ylabel("seed")
    first.set_ylim(max(map(len, models.values())) - 0.4, -0.6)  # of all panels
    shown = {label for rows in models.values() for row in rows for label in row}
    patches = [
        Patch(facecolor=COLOURS[concept], label=label)
        for label, concept in CLASS_CONCEPTS.items()
        if label in shown
    ]
    figure.legend(handles=patches, loc="outside upper center", ncols=min(4, len(patches)))
    return figure


def _class_grid(axes: Axes, rows: Sequence[Sequence[str]], n_heads: int) -> None:
    for seed, row in enumerate(rows):
        for head, label in enumerate(row):
            gap = 0.5 * (head // n_heads)  # between the layers
            axes.add_patch(
                Rectangle(
                    (head + gap - 0.45, seed - 0.45), 0.9, 0.9, color=COLOURS[CLASS_CONCEPTS[label]]
                )
            )
    width = len(rows[0])
    ticks = [head + 0.5 * (head // n_heads) for head in range(width)]
    axes.set_xticks(ticks, [f"{head // n_heads}.{head % n_heads}" for head in range(width)])
    axes.tick_params(axis="x", labelsize=9)
    axes.set_yticks([])
    axes.set_xlim(-0.7, ticks[-1] + 0.7)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("layer.head")


@themed
def plot_which_layer(models: Mapping[str, tuple[Array, Array]]) -> Figure:
    """Draw each model by the weight on the mirrored position in its two layers.

    Args:
        models: name of the group -> of each seed the mean over the heads of layer 0, and of layer 1.
    """
    figure, axes = subplots(height=4.2)
    axes.plot([0, 1], [0, 1], color=theme().ink, linestyle="--", linewidth=1, zorder=1)
    for (name, (first, last)), concept, marker in zip(
        models.items(), _ARCHITECTURES, "oDs^", strict=False
    ):
        axes.plot(
            first, last, marker, color=COLOURS[concept], alpha=0.75, markersize=8, mew=0, label=name
        )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal")
    axes.set_xlabel("weight on the mirrored position, layer 0")
    axes.set_ylabel("the same, layer 1")
    legend_above(axes, columns=len(models))
    return figure


@themed
def plot_falls(groups: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw how far the accuracy falls, a panel for what is taken away and a row for how.

    Args:
        groups: name of the panel -> name of the row -> one value a seed. Rows whose name begins with
            `layer 1` have the colour of attention.
    """
    figure, axes = subplots(len(groups), 1, height=0.42 * max(map(len, groups.values())) + 0.75)
    axes = np.atleast_1d(axes)
    for panel, (name, rows) in zip(axes, groups.items(), strict=True):
        concepts = {row: "attention" if row.startswith("layer 1") else "residual" for row in rows}
        seed_strip(panel, rows, label="", concepts=concepts, reference=0.0)
        panel.set_title(name, loc="right", fontsize=12)
        panel.set_xlim(-1.04, 0.06)
    axes[-1].set_xlabel("change of the accuracy")
    panel_letters(axes)
    return figure
