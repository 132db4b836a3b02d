"""Figures of the chapter on the scale of attention scores. Arrays have their seeds or rows first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from numpy import ndarray
from scipy import stats

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed

Array = Float[ndarray, "..."]
CONCEPTS = {
    "undivided": "attention",
    "root": "residual",
    "width": "norm",
    "learned": "ffn",
    "soft": "learned",
    "hard": "alibi",
}
"""What a divisor or a start is drawn as, the same on all figures."""
_WIDTHS = ("ffn", "norm", "attention")


@themed
def plot_tosses(widths: Sequence[int] = (4, 16, 64)) -> Figure:
    """Draw how scores of random signs spread: heads minus tails in as many tosses as a head is wide.

    Args:
        widths: widths of the head, at most three.
    """
    figure, axes = subplots(2, 1, height=2.5)
    for concept, d_head in zip(_WIDTHS, widths, strict=False):
        heads = np.arange(d_head + 1)
        score = 2 * heads - d_head
        chance = stats.binom.pmf(heads, d_head, 0.5) / 2  # two lie between neighbouring scores
        root = math.sqrt(d_head)
        for panel, divisor in zip(axes, (1.0, root), strict=True):
            panel.plot(
                score / divisor,
                chance * divisor,
                **look(concept) | {"markersize": 4},
                label=f"width {d_head}",
            )
    axes[0].set_xlim(-27, 27)
    axes[1].set_xlim(-4.5, 4.5)
    axes[0].set_xlabel("heads minus tails")
    axes[1].set_xlabel("the same, divided by the root of the width")
    for panel in axes:
        panel.set_ylabel("density")
    legend_above(axes[0])
    panel_letters(axes)
    return figure


@themed
def plot_shares(undivided: Mapping[int, Array], divided: Mapping[int, Array]) -> Figure:
    """Draw the mean weights of a row from largest to smallest, with and without the scale.

    Args:
        undivided: width of the head -> (row, key) weights.
        divided: the same from the same vectors, with the scale.
    """
    figure, axes = subplots(2, 1, height=2.3, sharex=True, sharey=True)
    for panel, found in zip(axes, (undivided, divided), strict=True):
        for concept, (d_head, weights) in zip(_WIDTHS, found.items(), strict=False):
            ordered = np.sort(np.asarray(weights), axis=1)[:, ::-1].mean(axis=0)
            panel.plot(
                np.arange(1, len(ordered) + 1), ordered, **look(concept), label=f"width {d_head}"
            )
        panel.set_ylabel("mean weight")
        panel.set_ylim(0, 1)
    axes[-1].set_xlabel("key, from the largest weight to the smallest")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    legend_above(axes[0])
    panel_letters(axes)
    return figure


@themed
def plot_what_passes(panels: Mapping[str, Mapping[int, Array]]) -> Figure:
    """Draw which share of rows lets at most so much through, a panel a number of keys.

    Args:
        panels: name of the panel -> width of the head -> (row,) Jacobian norms without the scale, relative
            to the mean norm with it.
    """
    figure, axes = subplots(len(panels), 1, height=2.5, sharex=True, squeeze=False)
    for panel, (name, widths) in zip(axes[:, 0], panels.items(), strict=True):
        for concept, (d_head, norms) in zip(_WIDTHS, widths.items(), strict=False):
            ordered = np.maximum(np.sort(np.asarray(norms)), 1e-8)
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            style = look(concept) | {"marker": ""}
            panel.plot(ordered, share, **style, label=f"width {d_head}")
            mean = float(ordered.mean())
            height = float(np.searchsorted(ordered, mean) / len(ordered))
            panel.plot(
                mean,
                height,
                marker="D",
                color=COLOURS[concept],
                mec=theme().ink,
                markersize=8,
                zorder=4,
            )
        panel.axvline(1.0, color=theme().ink, linestyle="--", linewidth=1)
        panel.set_xscale("log")
        panel.set_xlim(1e-4, 20)
        panel.set_ylim(0, 1)
        panel.set_ylabel(f"share of rows\n({name})")
    axes[-1, 0].set_xlabel("gradient let through, relative to the scaled mean")
    legend_above(axes[0, 0])
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_accuracies(panels: Mapping[str, Mapping[str, Mapping[str, Array]]]) -> Figure:
    """Draw the final accuracy of every seed, a panel a setting, a row a width and a divisor.

    Args:
        panels: name of the panel -> width, as text -> divisor, a key of `CONCEPTS` -> (seed,) accuracies.
    """
    names = {
        "undivided": "undivided",
        "root": r"by $\sqrt{d_h}$",
        "width": r"by $d_h$",
        "learned": "learned",
    }
    rows = [sum(map(len, widths.values())) for widths in panels.values()]
    height = 0.75 + 0.27 * sum(rows) / len(rows)
    figure, axes = subplots(
        len(panels), 1, height=height, sharex=True, squeeze=False, height_ratios=rows
    )
    everything = [
        np.min(values)
        for widths in panels.values()
        for divisors in widths.values()
        for values in divisors.values()
    ]
    for panel, (title, widths) in zip(axes[:, 0], panels.items(), strict=True):
        groups = {
            f"{width}: {names[divisor]}": values
            for width, divisors in widths.items()
            for divisor, values in divisors.items()
        }
        concepts = {
            f"{width}: {names[divisor]}": CONCEPTS[divisor]
            for width, divisors in widths.items()
            for divisor in divisors
        }
        seed_strip(panel, groups, label="", concepts=concepts)
        panel.set_title(title, loc="center")
        panel.set_xlim(min(everything) - 0.05, 1.03)
    axes[-1, 0].set_xlabel("accuracy after equal steps")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_learning_curves(
    panels: Mapping[str, Mapping[str, Array]],
    steps: Sequence[int] | ndarray,
    *,
    labels: Mapping[str, str],
) -> Figure:
    """Draw accuracy on held-out sequences over steps, a panel a setting.

    Args:
        panels: name of the panel -> divisor, a key of `CONCEPTS` -> (seed, evaluation) accuracies.
        steps: number of steps at each evaluation.
        labels: divisor -> name.
    """
    figure, axes = subplots(len(panels), 1, height=2.5, sharex=True, squeeze=False)
    for panel, (name, arms) in zip(axes[:, 0], panels.items(), strict=True):
        for arm, values in arms.items():
            seed_lines(panel, np.asarray(steps), values, concept=CONCEPTS[arm], label=labels[arm])
        panel.set_ylabel(f"accuracy\n({name})" if name else "accuracy")
        panel.set_ylim(0, 1.03)
    axes[-1, 0].set_xlabel("step")
    legend_above(axes[0, 0], columns=2)
    panel_letters(axes[:, 0]) if len(panels) > 1 else None
    return figure


@themed
def plot_spreads(settings: Mapping[str, tuple[Array, Array]]) -> Figure:
    """Draw how far scores spread in fresh and in trained models, an arrow a seed.

    Args:
        settings: name of the row -> (seed,) spread before and (seed,) spread after training.
    """
    figure, axes = subplots(height=0.9 + 0.42 * len(settings))
    for row, (before, after) in enumerate(settings.values()):
        offsets = np.linspace(-0.22, 0.22, len(before))
        for offset, start, end in zip(offsets, before, after, strict=True):
            axes.annotate(
                "",
                xy=(end, row + offset),
                xytext=(start, row + offset),
                arrowprops={"arrowstyle": "->", "color": COLOURS["attention"], "linewidth": 1.3},
            )
        axes.plot(before, row + offsets, "o", color=COLOURS["residual"], markersize=5)
        axes.plot(after, row + offsets, "s", color=COLOURS["attention"], markersize=3)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1.0, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(settings)), list(settings))
    axes.set_ylim(len(settings) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("standard deviation of the scores, first block")
    return figure
