"""Figures on mixtures of experts: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed, tint
from xarray import Dataset

from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots
from measured_book.rooms.mixture_of_experts.measure import AT, BALANCED, DENSE

NAMES: Mapping[str, str] = {
    "one": "balancing loss",
    "none": "nothing",
    "biases": "biases",
    "random": "random router",
    "two": "2 of 16 small ones",
}
"""What an arm is called: by what keeps it balanced, or by how its experts are cut."""
CONCEPTS: Mapping[str, str] = {
    "one": "ffn",
    "none": "attention",
    "biases": "learned",
    "random": "random",
    "two": "alibi",
}
"""What an arm is drawn as."""


@themed
def plot_layer() -> Figure:
    """Draw a routed layer: a token, the router, three experts of which two answer, and their weighted sum."""
    figure, axes = subplots(height=3.3)
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 5.1)
    axes.axis("off")

    def box(x: float, y: float, width: float, words: str, concept: str, *, on: bool = True) -> None:
        patch = FancyBboxPatch(
            (x, y), width, 0.8, boxstyle="round,pad=0.06", linewidth=1.5,
            facecolor=tint(concept) if on else "none",
            edgecolor=COLOURS[concept] if on else theme().faint,
        )  # fmt: skip
        axes.add_patch(patch)
        axes.text(
            x + width / 2, y + 0.4, words, ha="center", va="center", fontsize=10, color=theme().ink,
            alpha=1.0 if on else 0.45,
        )  # fmt: skip

    def arrow(start: tuple[float, float], end: tuple[float, float], *, on: bool = True) -> None:
        axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=11,
                linewidth=1.4,
                color=theme().ink if on else theme().faint,
                shrinkA=0,
                shrinkB=0,
            )
        )

    box(0.2, 1.5, 1.2, "token $x$", "residual")
    box(1.7, 4.0, 2.4, "router\n0.6    0.1    0.3", "attention")
    arrow((0.8, 2.4), (1.6, 4.2))
    for row, (y, weight) in enumerate(((3.1, "0.6"), (1.9, ""), (0.7, "0.3"))):
        on = row != 1
        box(4.9, y - 0.4, 1.7, f"expert {row + 1}", "ffn", on=on)
        arrow((1.5, 1.9), (4.8, y), on=on)
        if on:
            arrow((6.7, y), (8.5, 1.9 + 0.12 * (1 - row)))
            axes.text(
                7.75, y - 0.35 * (1 - row) + 0.12 * (1 - row), f"$\\times\\,{weight}$", fontsize=11,
                ha="left", va="bottom" if row == 0 else "top",
            )  # fmt: skip
    box(8.6, 1.5, 0.9, "sum", "residual")
    return figure


@themed
def plot_bought(bought: Dataset) -> Figure:
    """Draw the loss (a) over the operations of a token, (b) over the parameters of the layer, every seed.

    Args:
        bought: the result ``bought``.
    """
    figure, panels = subplots(1, 2, height=4.0, sharey=True)
    for axes, name in zip(panels, ("operations", "parameters"), strict=True):
        of = bought[name].isel(seed=0)
        dense = [f"dense {m}" for m in DENSE]
        at = of.sel(arm=dense).values.astype(float)
        losses = bought.loss.sel(arm=dense)
        style = look("none")
        for seed in losses.seed.values:
            dots = losses.sel(seed=seed).values
            axes.plot(at, dots, "o", color=style["color"], alpha=0.3, markersize=4, mew=0)
        axes.plot(at, losses.mean("seed").values, color=style["color"], linewidth=1.6)
        for arm in ("one", "two"):
            values = bought.loss.sel(arm=arm).values
            x = float(of.sel(arm=arm))
            axes.plot(
                np.full(values.size, x), values, "o", color=COLOURS[CONCEPTS[arm]], alpha=0.4,
                markersize=4, mew=0,
            )  # fmt: skip
            axes.plot(
                x, values.mean(), "D", color=COLOURS[CONCEPTS[arm]], mec=theme().ink, markersize=8,
                zorder=4,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xticks(at, [f"{one:,.0f}" for one in at])
    panels[0].set_xlabel("operations of a token")
    panels[1].set_xlabel("parameters of the layer")
    panels[0].set_ylabel("loss, nats an answer")
    _name_arms(panels[0], bought)
    panel_letters(panels)
    return figure


def _name_arms(axes: Axes, bought: Dataset) -> None:
    """Names of the arms, one below another, in their colours."""
    words = {"one network": "none", "1 of 8 experts": "ffn", "2 of 16 experts": "alibi"}
    for row, (name, concept) in enumerate(words.items()):
        axes.text(
            0.97, 0.95 - 0.075 * row, name, color=COLOURS[concept], transform=axes.transAxes,
            ha="right", va="top", fontsize=10,
        )  # fmt: skip


@themed
def plot_loads(course: Dataset, hurried: Dataset) -> Figure:
    """Draw the load of the busiest expert (a) over training, (b) over the learning rate, every seed.

    Args:
        course: the result ``course``.
        hurried: the result ``hurried``.
    """
    figure, panels = subplots(1, 2, height=3.7, sharey=True)
    for arm in course.arm.values:
        values = course.busiest.sel(arm=arm).transpose("seed", "step").values
        seed_lines(panels[0], np.arange(len(AT)), values, concept=CONCEPTS[arm])
    rates = np.arange(hurried.sizes["rate"])
    for arm, shift in zip(hurried.arm.values, (-0.07, 0.07), strict=True):
        values = hurried.busiest.sel(arm=arm).transpose("seed", "rate").values
        style = look(CONCEPTS[arm])
        for row in values:
            panels[1].plot(
                rates + shift, row, "o", color=style["color"], alpha=0.4, markersize=4, mew=0
            )
        panels[1].plot(rates + shift, values.mean(0), **style, zorder=3)
    panels[0].set_xticks(range(len(AT)), [str(step) for step in AT])
    panels[0].set_xlabel("step")
    panels[0].set_ylabel("load of the busiest expert")
    panels[1].set_xticks(rates, [f"{rate:g}" for rate in hurried.rate.values])
    panels[1].set_xlabel("learning rate")
    for row, arm in enumerate(course.arm.values):
        panels[0].text(
            0.97, 0.95 - 0.08 * row, NAMES[arm], color=COLOURS[CONCEPTS[arm]],
            transform=panels[0].transAxes, ha="right", va="top", fontsize=10,
        )  # fmt: skip
    for axes in panels:
        axes.axhline(1.0, color=theme().ink, linestyle="--", linewidth=1)
        axes.set_ylim(bottom=0.7)
    panel_letters(panels)
    return figure


@themed
def plot_places(places: Dataset) -> Figure:
    """Draw (a) the share of dropped tokens, (b) the loss, over the capacity factor.

    Args:
        places: the result ``places``.
    """
    figure, panels = subplots(1, 2, height=3.5)
    for arm in places.arm.values:
        for axes, name in zip(panels, ("dropped", "loss"), strict=True):
            values = places[name].sel(arm=arm).transpose("seed", "factor").values
            seed_lines(axes, places.factor.values, values, concept=CONCEPTS[arm])
    for row, arm in enumerate(places.arm.values):
        panels[1].text(
            0.97, 0.95 - 0.08 * row, NAMES[arm], color=COLOURS[CONCEPTS[arm]],
            transform=panels[1].transAxes, ha="right", va="top", fontsize=10,
        )  # fmt: skip
    panels[0].set_ylabel("share of tokens dropped")
    panels[1].set_ylabel("loss, nats an answer")
    for axes in panels:
        axes.set_xlabel("capacity factor")
    panel_letters(panels)
    return figure


@themed
def plot_choice(loads: Dataset) -> Figure:
    """Draw how much of an expert's choice is explained (a) by the skill, (b) by the item.

    Args:
        loads: the result ``loads``.
    """
    figure, panels = subplots(2, 1, height=2.6, sharex=True)
    for axes, name in zip(panels, ("skill", "item"), strict=True):
        seed_strip(
            axes,
            {NAMES[arm]: loads[name].sel(arm=arm).values for arm in BALANCED},
            label=f"share of the choice that the {name} explains",
            concepts={NAMES[arm]: CONCEPTS[arm] for arm in BALANCED},
        )
        axes.set_xlim(0, 1)
        axes.tick_params(labelbottom=True)
    panel_letters(panels)
    return figure
