"""Figures on networks and attention: budgets, an exclusive-or in a plane, losses, rises against rises."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from measured_transformer.chapters.network_or_attention.measure import Budget, TwoHeads
from measured_transformer.figures.plots import panel_letters, seed_strip, subplots
from measured_transformer.figures.style import COLOURS, look, theme, themed, tint

Array = Float[np.ndarray, "..."]

TASKS: Mapping[str, str] = {
    "reversal": "rotary",
    "addition": "learned",
    "recall": "alibi",
    "text": "sinusoidal",
}
"""Task -> concept of the palette."""


@themed
def plot_budgets(found: Mapping[str, Budget]) -> Figure:
    """Draw how many parameters of a block belong to attention and to the network.

    Args:
        found: name of the model -> its budget.
    """
    figure, axes = subplots(height=0.42 * len(found) + 1.1)
    for row, one in enumerate(found.values()):
        parts = ((0, one.attention, "attention"), (one.attention, one.network, "ffn"))
        for start, width, concept in parts:
            if not width:
                continue
            straight = concept == "ffn" and not one.bends
            axes.barh(
                row, width, left=start, height=0.62, facecolor=tint(concept, 0.55),
                edgecolor=COLOURS[concept], linewidth=1.2, hatch="//" if straight else "",
            )  # fmt: skip
            name = "attention" if concept == "attention" else "network"
            axes.text(
                start + width / 2, row, name, ha="center", va="center", fontsize=10,
                bbox={"facecolor": tint(concept, 0.55), "edgecolor": "none", "pad": 1.5},
            )  # fmt: skip
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("parameters of a block")
    return figure


@themed
def plot_two_planes(found: TwoHeads) -> Figure:
    """Draw the four pairs of bits as they are and by what two heads make of them, marked by exclusive-or.

    Args:
        found: what the heads make of the pairs.
    """
    figure, panels = subplots(1, 2, height=3.3)
    bits = found.bits.double().numpy()
    places = (bits, np.stack([found.mean.numpy(), found.looks.numpy()], axis=1))
    odd = bits.sum(1) == 1
    names = ["0, 0", "0, 1", "1, 0", "1, 1"]
    for axes, where, same in zip(panels, places, (False, True), strict=True):
        for concept, chosen, label in (("none", ~odd, "alike"), ("attention", odd, "different")):
            style = look(concept)
            axes.plot(
                where[chosen, 0], where[chosen, 1], style["marker"], color=style["color"],
                markersize=9, label=label,
            )  # fmt: skip
        for place, name in zip(where, names, strict=True):
            if same and name == "1, 0":
                continue  # it lies where 0, 1 does
            low = place[1] < 0.5 or (same and place[0] > 0.75)
            text = "0, 1 and 1, 0" if same and name == "0, 1" else name
            axes.annotate(
                text, place, xytext=(0, -12 if low else 9), textcoords="offset points",
                ha="center", va="top" if low else "bottom",
            )  # fmt: skip
        axes.set_xlim(-0.15, 1.15)
        axes.set_ylim(-0.25, 1.25)
        axes.set_xticks((0, 0.5, 1), ("0", "½", "1"))
        axes.set_yticks((0, 0.5, 1), ("0", "½", "1"))
    panels[1].axline((0, 0.25), slope=1, color=theme().ink, linestyle="--", linewidth=1.2)
    panels[0].set_xlabel("first bit")
    panels[0].set_ylabel("second bit")
    panels[1].set_xlabel("mean head")
    panels[1].set_ylabel("head that looks for ones")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    panel_letters(panels)
    return figure


@themed
def plot_strips(
    panels: Mapping[str, Mapping[str, Array]],
    concepts: Mapping[str, str],
    references: Mapping[str, float],
) -> Figure:
    """Draw one value a seed for every model, one panel a measure.

    Args:
        panels: what is measured, with its unit -> name of the model -> one value a seed.
        concepts: name of the model -> key of `COLOURS`.
        references: what is measured -> a value to mark, such as that of guessing; not every one has one.
    """
    rows = [len(found) for found in panels.values()]
    figure, drawn = subplots(
        len(panels), 1, height=0.36 * max(rows) + 0.75, height_ratios=[n + 1.2 for n in rows]
    )
    for axes, (label, found) in zip(np.atleast_1d(drawn), panels.items(), strict=True):
        seed_strip(axes, found, label=label, concepts=concepts, reference=references.get(label))
        axes.xaxis.set_major_locator(MaxNLocator(7))
    if len(panels) > 1:
        panel_letters(np.atleast_1d(drawn))
    return figure


@themed
def plot_plane(
    panels: Mapping[str, Mapping[str, tuple[Array, Array]]], *, margin: float = 0.1
) -> Figure:
    """Draw the rise without the network (across) against that without attention (up), every seed a mark.

    Both axes are straight up to one tenth on either side of zero and logarithmic beyond.

    Args:
        panels: how the part was taken away -> task -> rises without the network and without attention.
        margin: within which of the diagonal both count as equal.
    """
    figure, drawn = subplots(1, len(panels), height=3.9, sharex=True, sharey=True, squeeze=False)
    across, up = (
        np.concatenate([pair[i] for tasks in panels.values() for pair in tasks.values()])
        for i in (0, 1)
    )
    low, bottom = (min(-0.12, 1.3 * float(values.min())) for values in (across, up))
    high = 1.6 * float(max(across.max(), up.max()))
    for axes, tasks in zip(drawn[0], panels.values(), strict=True):
        _equal(axes, min(low, bottom), high, margin)
        for task, (network, attention) in tasks.items():
            style = look(TASKS[task])
            axes.plot(
                network, attention, style["marker"], color=style["color"], mfc="none", mew=1.6,
                markersize=7, label=task, zorder=3,
            )  # fmt: skip
        for axis, scale, least in (
            (axes.xaxis, axes.set_xscale, low),
            (axes.yaxis, axes.set_yscale, bottom),
        ):
            scale("symlog", linthresh=0.1, linscale=0.6)
            ticks = [t for t in (-1, -0.1, 0, 0.1, 1, 10) if least <= t <= high]
            axis.set_ticks(ticks, [f"{t:g}".replace("-", "\N{MINUS SIGN}") for t in ticks])
            axis.set_minor_locator(NullLocator())
        axes.set_xlim(low, high)
        axes.set_ylim(bottom, high)
        axes.set_xlabel("rise without the network")
    drawn[0, 0].set_ylabel("rise without attention (nats)")
    handles, labels = drawn[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    panel_letters(drawn[0])
    return figure


def _equal(axes: Axes, low: float, high: float, margin: float) -> None:
    """The diagonal, and the band around it in which both rises count as equal."""
    x = np.concatenate([np.linspace(low, 0.2, 200), np.geomspace(0.2, high, 200)])
    axes.fill_between(x, x - margin, x + margin, color=theme().faint, linewidth=0, alpha=0.8)
    axes.plot(x, x, color=theme().ink, linewidth=1, linestyle="--")


@themed
def plot_by_block(found: Mapping[str, tuple[Array, Array]]) -> Figure:
    """Draw the rise of the loss when one sublayer of a trained model is replaced, a panel a task.

    Args:
        found: task -> rises for the network and for the attention of each block, each (seed, block).
    """
    rows = 2 * next(iter(found.values()))[0].shape[1]
    figure, drawn = subplots(len(found), 1, height=0.3 * rows + 0.7)
    for axes, (task, (network, attention)) in zip(np.atleast_1d(drawn), found.items(), strict=True):
        groups, concepts = {}, {}
        for block in range(network.shape[1]):
            for name, values, concept in (
                ("attention", attention, "attention"),
                ("network", network, "ffn"),
            ):
                row = f"{name}, block {block + 1}"
                groups[row], concepts[row] = values[:, block], concept
        seed_strip(axes, groups, label=f"rise of the loss (nats), {task}", concepts=concepts)
        axes.axvline(0, color=theme().ink, linewidth=1)
    panel_letters(np.atleast_1d(drawn))
    return figure
