"""Figures on the feed-forward network: ramps and bends, who sees whom, activations, where parameters are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from measured_transformer.chapters.feed_forward.measure import (
    Fit,
    SmallNetwork,
    approximation_error,
    derivative,
)
from measured_transformer.figures.plots import (
    heat_map,
    legend_above,
    panel_letters,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed, tint
from measured_transformer.parts.feedforward import Activation, activation_function

Array = Float[np.ndarray, "..."]

_SHADES = ("ffn", "rotary", "sinusoidal", "learned")
_GROUPS = {
    "embeddings": ("residual", 0.45),
    "attention": ("attention", 0.55),
    "networks": ("ffn", 0.5),
    "norms": ("norm", 0.7),
    "head": ("none", 0.35),
}
_GROUP_NAMES = {
    "embeddings": "embeddings",
    "attention": "attention",
    "networks": "feed-forward networks",
    "norms": "norms",
    "head": "unembedding or pooler",
}


@themed
def plot_ramps(network: SmallNetwork, token: Sequence[float], *, reach: float = 4.0) -> Figure:
    """Draw where each neuron of a network on two numbers is at work, and the first number that it writes.

    Args:
        network: at most four neurons.
        token: a point to mark.
        reach: both axes go from -reach/4 to reach.
    """
    figure, (left, right) = subplots(1, 2, height=3.9)
    steps = torch.linspace(-reach / 4, reach, 321)
    first, second = torch.meshgrid(steps, steps, indexing="xy")
    points = torch.stack([first, second], dim=-1)
    before, written = network.before(points).numpy(), network(points)[..., 0].numpy()
    grid = steps.numpy()
    for number in range(before.shape[-1]):
        concept = _SHADES[number]
        pre = before[..., number]
        ramp = np.clip(pre, 0, None)
        shade = np.empty((*pre.shape, 4))
        shade[..., :3] = to_rgb(COLOURS[concept])
        shade[..., 3] = 0.42 * ramp / ramp.max()
        left.imshow(
            shade,
            extent=(grid[0], grid[-1], grid[0], grid[-1]),
            origin="lower",
            interpolation="bilinear",
        )
        style = look(concept)
        left.contour(
            grid, grid, pre, levels=[0.0], colors=[style["color"]], linewidths=2.2,
            linestyles=[("-", "--", "-.", ":")[number]],
        )  # fmt: skip
        left.plot(
            [], [], color=style["color"], linestyle=("-", "--", "-.", ":")[number],
            linewidth=2.2, label=f"neuron {number + 1}",
        )  # fmt: skip
    marks = right.contour(
        grid, grid, written, levels=np.arange(-8, 9), colors=[theme().ink], linewidths=1.1,
        negative_linestyles="dotted",
    )  # fmt: skip
    right.clabel(marks, fontsize=9, fmt="%d")
    for number in range(before.shape[-1]):
        right.contour(
            grid, grid, before[..., number], levels=[0.0], colors=[COLOURS[_SHADES[number]]],
            linewidths=2.2, linestyles=[("-", "--", "-.", ":")[number]],
        )  # fmt: skip
    for axes in (left, right):
        axes.plot(*token, marker="o", color=theme().ink, markersize=8, linestyle="none")
        axes.set_aspect("equal")
        axes.set_xlim(grid[0], grid[-1])
        axes.set_ylim(grid[0], grid[-1])
        axes.grid(visible=False)
        axes.set_xlabel(r"$x_1$")
    left.set_ylabel(r"$x_2$")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    panel_letters((left, right))
    return figure


@themed
def plot_widths(x: Array, target: Array, fits: Mapping[int, Sequence[Fit]]) -> Figure:
    """Draw a curve and its fits by networks of several widths; ticks mark where the neurons of the first begin.

    Args:
        x: where both are known.
        target: the curve.
        fits: number of neurons -> a fit for each seed; four widths.
    """
    figure, panels = subplots(2, 2, height=2.4, sharex=True, sharey=True)
    for axes, (neurons, found) in zip(panels.flat, fits.items(), strict=True):
        axes.plot(x, target, color=theme().ink, linewidth=1.2, linestyle="--")
        for number, fit in enumerate(found):
            axes.plot(
                x, fit.values, color=COLOURS["ffn"], linewidth=2.4 if number == 0 else 1.0,
                alpha=1.0 if number == 0 else 0.35, zorder=3 if number == 0 else 2,
            )  # fmt: skip
        knots = found[0].knots
        low = float(target.min()) - 0.9
        axes.plot(knots, np.full_like(knots, low), "|", color=COLOURS["ffn"], markersize=9, mew=1.4)
        words = f"{neurons} neuron" + ("s" if neurons > 1 else "")
        axes.text(0.98, 0.97, words, transform=axes.transAxes, ha="right", va="top", fontsize=11)
    for axes in panels[-1]:
        axes.set_xlabel("input")
    for axes in panels[:, 0]:
        axes.set_ylabel("output")
    panel_letters(panels.flat)
    return figure


@themed
def plot_seen_positions(attention: Array, network: Array) -> Figure:
    """Draw the norms of the Jacobian's blocks of causal attention and of a network; exact zeros stay empty.

    Args:
        attention, network: shape (output position, input position).
    """
    figure, panels = subplots(1, 2, height=2.9)
    for axes, blocks in zip(panels, (attention, network), strict=True):
        shown = np.where(blocks > 0, blocks, np.nan)
        heat_map(
            axes, shown, label="norm of the block", x_label="input position",
            y_label="output position", limits=(0.0, float(blocks.max())),
        )  # fmt: skip
        axes.set_xticks(range(len(blocks)), [str(i + 1) for i in range(len(blocks))])
        axes.set_yticks(range(len(blocks)), [str(i + 1) for i in range(len(blocks))])
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(theme().faint)
    panel_letters(panels)
    return figure


@themed
def plot_arms(
    tasks: Mapping[str, Mapping[str, Array]],
    references: Mapping[str, float],
    concepts: Mapping[str, str],
) -> Figure:
    """Draw the accuracy of every arm on every task, one panel a task.

    Args:
        tasks: task -> arm -> accuracy of each seed.
        references: task -> accuracy of guessing.
        concepts: arm -> key of `COLOURS`.
    """
    figure, panels = subplots(len(tasks), 1, height=1.75)
    for axes, (task, found) in zip(np.atleast_1d(panels), tasks.items(), strict=True):
        seed_strip(
            axes, found, label=f"accuracy, {task}", concepts=concepts, reference=references[task]
        )
        axes.set_xlim(-0.02, 1.03)
    panel_letters(np.atleast_1d(panels))
    return figure


@themed
def plot_by_length(
    lengths: Sequence[int],
    found: Mapping[str, Array],
    concepts: Mapping[str, str],
    *,
    trained: int,
    guess: float,
) -> Figure:
    """Draw accuracy over the number of tokens in a sequence, every seed faint.

    Args:
        lengths: numbers of tokens.
        found: name -> accuracy, shape (seed, length).
        concepts: name -> key of `COLOURS`.
        trained: the length of training, marked.
        guess: accuracy of guessing, marked.
    """
    figure, axes = subplots(height=3.5)
    axes.axhline(guess, color=theme().ink, linestyle="--", linewidth=1)
    axes.axvline(trained, color=theme().faint, linewidth=6, zorder=0)
    for name, values in found.items():
        style = look(concepts[name])
        for row in values:
            axes.plot(lengths, row, color=style["color"], alpha=0.3, linewidth=0.9)
        axes.plot(lengths, values.mean(0), **style, label=name, zorder=3)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.minorticks_off()
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("tokens in the sequence")
    axes.set_ylabel("accuracy")
    axes.legend(loc="lower right", ncols=1)
    return figure


@themed
def plot_whereabouts_of_models(models: Mapping[str, Mapping[str, int]]) -> Figure:
    """Draw a bar a model, cut into the shares of its parameters.

    Args:
        models: name -> group -> number of parameters, groups as in `analysis.feed_forward.whereabouts`.
    """
    figure, axes = subplots(height=0.68 * len(models) + 1.7)
    for place, groups in enumerate(models.values()):
        whole, start = sum(groups.values()), 0.0
        for group, number in groups.items():
            share = number / whole
            axes.barh(
                place, share, left=start, height=0.6, color=tint(*_GROUPS[group]),
                edgecolor=theme().ink, linewidth=0.8,
                label=_GROUP_NAMES[group] if place == 0 else "_nolegend_",
            )  # fmt: skip
            if share > 0.06:
                axes.text(
                    start + share / 2, place, f"{share:.2f}", ha="center", va="center", fontsize=10
                )
            start += share
    names = [f"{name}, {sum(of.values()) / 1e6:.0f} million" for name, of in models.items()]
    axes.set_yticks(range(len(models)), [name.replace(", ", "\n") for name in names])
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of the parameters")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=2, borderaxespad=0)
    return figure


_CURVES: Mapping[Activation, tuple[str, str]] = {
    "relu": ("ReLU", "learned"),
    "gelu": ("GELU", "ffn"),
    "silu": ("SiLU", "sinusoidal"),
}


@themed
def plot_activations(*, reach: float = 4.0) -> Figure:
    """Draw ReLU, GELU and SiLU, and their derivatives.

    Args:
        reach: the axis goes from -reach to reach.
    """
    figure, panels = subplots(1, 2, height=3.3)
    # An even number of points: none of them is zero, where ReLU has no derivative.
    x = torch.linspace(-reach, reach, 800, dtype=torch.float64)
    for name, (words, concept) in _CURVES.items():
        style = look(concept) | {"marker": None}
        panels[0].plot(x, activation_function(name)(x), **style, label=words, linewidth=2)
        slope = derivative(name, x).numpy()
        panels[1].plot(x, slope, **style, label=words, linewidth=2)
    for axes, label in zip(panels, ("value", "derivative"), strict=True):
        axes.set_xlabel("input")
        axes.set_ylabel(label)
        axes.axhline(0, color=theme().faint, linewidth=1, zorder=0)
    panels[0].legend(loc="upper left")
    panel_letters(panels)
    return figure


@themed
def plot_approximations(*, reach: float = 6.0) -> Figure:
    """Draw what GELU's two approximations are off by: the values, and the derivatives.

    Args:
        reach: the axis goes from -reach to reach.
    """
    figure, panels = subplots(2, 1, height=2.1, sharex=True)
    x = torch.linspace(-reach, reach, 2001, dtype=torch.float64)
    exact = derivative("gelu", x)
    forms: Mapping[Activation, tuple[str, str]] = {
        "gelu_tanh": ("form with tanh", "ffn"),
        "gelu_sigmoid": ("form with the sigmoid", "alibi"),
    }
    for name, (words, concept) in forms.items():
        style = look(concept) | {"marker": None}
        panels[0].plot(x, approximation_error(name, x), **style, label=words, linewidth=2)
        panels[1].plot(x, derivative(name, x) - exact, **style, linewidth=2)
    _label(panels[0], "error of the value")
    _label(panels[1], "error of the derivative")
    panels[1].set_xlabel("input")
    legend_above(panels[0], columns=2)
    panel_letters(panels)
    return figure


def _label(axes: Axes, words: str) -> None:
    axes.set_ylabel(words)
    axes.axhline(0, color=theme().faint, linewidth=1, zorder=0)
