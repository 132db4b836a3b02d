"""Figures about removing heads: who serves whom, curves over the share removed, what can go, what insures.

Arrays have their seeds first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]

METHODS: Mapping[str, str] = {
    "gradient": "residual",
    "ablation": "attention",
    "confidence": "ffn",
    "iterative": "norm",
    "random": "random",
}
"""Way to rank heads -> concept of the palette."""


@themed
def plot_twins(
    jobs: Sequence[Sequence[int]], places: int, losses: Mapping[str, Sequence[float]]
) -> Figure:
    """Draw which places each head serves, and the loss as heads are removed in several orders.

    Args:
        jobs: for each head the places that it serves.
        places: number of places.
        losses: name of the order -> the loss with 0, 1, 2, ... heads removed.
    """
    figure, (above, below) = subplots(2, 1, height=2.5)
    names = [f"head {head}" for head in range(len(jobs))]
    for row, served in enumerate(jobs):
        for place in range(1, places + 1):
            fill = tint("attention", 0.55) if place in served else "none"
            above.add_patch(
                Rectangle(
                    (place - 0.45, row - 0.4), 0.9, 0.8, facecolor=fill, edgecolor=theme().ink
                )
            )
    above.set_xlim(0.4, places + 0.6)
    above.set_ylim(len(jobs) - 0.5, -0.5)
    above.set_yticks(range(len(jobs)), names)
    above.set_xticks(range(1, places + 1))
    above.grid(visible=False)
    above.tick_params(length=0)
    above.set_xlabel("place whose answer the head fetches")
    for (name, values), concept in zip(losses.items(), ("residual", "norm"), strict=False):
        seed_lines(below, np.arange(len(values)), np.array(values), concept=concept, label=name)
    below.set_xticks(range(len(jobs) + 1))
    below.set_xlabel("heads removed")
    below.set_ylabel("loss (nats)")
    legend_above(below, columns=2)
    panel_letters((above, below))
    return figure


@themed
def plot_curves(
    shares: Mapping[str, Sequence[float]], losses: Mapping[str, Mapping[str, Array]]
) -> Figure:
    """Draw the loss over the share of heads removed, a panel a task, a line a way to rank, each seed faint.

    Args:
        shares: way to rank -> shares of the heads that were removed.
        losses: task -> way to rank -> loss, (seed, share).
    """
    figure, panels = subplots(len(losses), 1, height=2.15, sharex=True)
    for axes, (task, ways) in zip(np.atleast_1d(panels), losses.items(), strict=True):
        for way, values in ways.items():
            seed_lines(axes, shares[way], values, concept=METHODS[way], label=way)
        axes.set_ylabel("loss (nats)")
        axes.set_title(task, loc="right")
    last = np.atleast_1d(panels)[-1]
    last.set_xlabel("share of the heads removed")
    last.set_xlim(-0.02, 1.02)
    handles, labels = last.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_shares(
    found: Mapping[str, Mapping[str, Array]], *, claimed: tuple[float, float]
) -> Figure:
    """Draw the largest share of heads that can go, a panel a way to rank, a row a task, a dot a seed.

    Args:
        found: way to rank -> task -> shares, one a seed.
        claimed: the range that a source names, tinted.
    """
    tasks = len(next(iter(found.values())))
    figure, panels = subplots(len(found), 1, height=0.42 * tasks + 0.75, sharex=True)
    for axes, (way, by_task) in zip(np.atleast_1d(panels), found.items(), strict=True):
        axes.axvspan(*claimed, color=tint("ffn", 0.25), zorder=0, lw=0)
        seed_strip(axes, by_task, label="", concepts=dict.fromkeys(by_task, METHODS[way]))
        axes.set_title(way, loc="right")
    last = np.atleast_1d(panels)[-1]
    last.set_xlabel("largest share that can go at 1 percent of relative loss")
    last.set_xlim(-0.03, 1.03)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_rises(found: Mapping[str, Array], *, critical: float) -> Figure:
    """Draw what the loss rises by without each single head, the largest first; a panel a task, a line a seed.

    Args:
        found: task -> rises, (seed, head), in any order.
        critical: a rise to mark with a dashed line.
    """
    figure, panels = subplots(len(found), 1, height=1.75, sharex=True)
    for axes, (task, values) in zip(np.atleast_1d(panels), found.items(), strict=True):
        ranked = np.sort(values, axis=1)[:, ::-1]
        seed_lines(
            axes, np.arange(1, ranked.shape[1] + 1), ranked, concept="attention", label="mean"
        )
        axes.axhline(critical, color=theme().ink, linestyle="--", linewidth=1)
        axes.set_title(task, loc="right")
        axes.set_ylabel("rise (nats)")
    np.atleast_1d(panels)[-1].set_xlabel("rank of the head")
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_few_heads(found: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw final losses of models with few heads, a panel a task, a row an arm, a dot a seed.

    Args:
        found: task -> arm -> losses, one a seed.
    """
    arms = len(next(iter(found.values())))
    figure, panels = subplots(len(found), 1, height=0.36 * arms + 0.7)
    for axes, (task, by_arm) in zip(np.atleast_1d(panels), found.items(), strict=True):
        concepts = {arm: _arm_concept(arm) for arm in by_arm}
        seed_strip(axes, by_arm, label="", concepts=concepts)
        axes.set_title(task, loc="right")
    np.atleast_1d(panels)[-1].set_xlabel("loss (nats)")
    panel_letters(np.atleast_1d(panels))
    return figure


def _arm_concept(arm: str) -> str:
    return "none" if "eight" in arm else "attention" if "scratch" in arm else "residual"


@themed
def plot_random_quarter(
    found: Mapping[str, tuple[Array, Array]], *, names: tuple[str, str]
) -> Figure:
    """Draw what the loss rises by when a random quarter of the heads is off, two models a task.

    Args:
        found: task -> rises with the first and with the second model, one a seed; pairs are joined.
        names: of the two models.
    """
    figure, axes = subplots(height=3.2)
    for place, pair in enumerate(found.values()):
        _pairs(axes, place, pair, names if place == 0 else ("", ""))
    axes.set_xticks(range(len(found)), list(found))
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("rise of the loss (nats)")
    legend_above(axes, columns=2)
    return figure


def _pairs(axes: Axes, place: int, pair: tuple[Array, Array], names: tuple[str, str]) -> None:
    left, right = (np.asarray(values, dtype=float) for values in pair)
    for first, second in zip(left, right, strict=True):
        axes.plot([place - 0.15, place + 0.15], [first, second], color=theme().faint, linewidth=1.2)
    sides = ((left, -0.15, "residual", "o"), (right, 0.15, "attention", "s"))
    for (values, shift, concept, marker), name in zip(sides, names, strict=True):
        colour, label = COLOURS[concept], name or "_nolegend_"
        across = np.full(len(values), place + shift)
        axes.plot(across, values, marker, color=colour, alpha=0.6, mew=0, label=label)
        axes.plot(
            place + shift, values.mean(), "D", color=colour, mec=theme().ink, markersize=8, zorder=4
        )
