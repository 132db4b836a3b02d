"""Figures of the chapter on the feed-forward network: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from measured_transformer.parts.feedforward import Activation, activation_function
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    heat_map,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.feed_forward.measure import (
    COMPANY,
    JOBS,
    Fit,
    SmallNetwork,
    derivative,
)

Array = Float[np.ndarray, "..."]

_SHADES = ("ffn", "rotary", "sinusoidal", "learned")
NAMES = {
    "whole": "whole",
    "heads": "more heads",
    "layers": "more layers",
    "neurons": "more neurons",
    "linear": "linear map",
    "removed": "nothing",
}
"""What a model is made of -> its name in figures."""
CONCEPTS = {
    "whole": "ffn",
    "heads": "attention",
    "layers": "alibi",
    "linear": "norm",
    "removed": "none",
}
"""What a model is made of -> how it is drawn, the same in all figures."""
JOB_NAMES = {
    "copy": "copy",
    "recall": "recall",
    "alone": "exclusive-ors, alone",
    "table": "table",
    "both": "table, mirrored",
    "sums": "sums",
    "text": "text",
}
"""Job -> its name in figures."""


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
def plot_by_length(company: Dataset) -> Figure:
    """Draw accuracy over the number of tokens in a row, with its guess and the length of training marked.

    Args:
        company: the result ``company``.
    """
    figure, axes = subplots(height=3.5)
    tokens = company.tokens.values
    guess = 1 / 2 ** (COMPANY.bits // 2)
    axes.axhline(guess, color=theme().ink, linestyle="--", linewidth=1)
    axes.text(16, guess + 0.02, "guessing", ha="right", va="bottom", fontsize=10)
    axes.axvline(COMPANY.length, color=theme().faint, linewidth=6, zorder=0)
    places = {
        "whole": (1.05, 0.93, "with a network"),
        "heads": (1.03, 0.72, "attention alone,\nmore heads"),
        "layers": (2.9, 0.52, "attention alone, more layers"),
    }
    for name, (x, y, text) in places.items():
        values = company.by_length.sel(arm=name).transpose("seed", "tokens").values
        seed_lines(axes, tokens, values, concept=CONCEPTS[name], marker_every=1)
        axes.text(x, y, text, color=COLOURS[CONCEPTS[name]], fontsize=10)
    axes.set_xscale("log", base=2)
    axes.set_xticks(tokens, [str(n) for n in tokens])
    axes.minorticks_off()
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("tokens in the row")
    axes.set_ylabel("accuracy")
    return figure


_PLACES: Mapping[str, tuple[float, float, str]] = {
    "copy": (-0.01, 0.06, "center"),
    "recall": (0.03, 0.0, "left"),
    "alone": (0.0, 0.05, "center"),
    "table": (0.0, 0.05, "center"),
    "both": (0.0, 0.06, "center"),
    "sums": (0.03, 0.0, "left"),
    "text": (0.03, 0.04, "left"),
}


def lost(jobs: Dataset) -> tuple[DataArray, DataArray]:
    """Accuracy lost without the network, and without attention: of the whole model less the other, by seed."""
    whole = jobs.accuracy.sel(arm="whole", drop=True)
    without = [whole - jobs.accuracy.sel(arm=name, drop=True) for name in ("heads", "neurons")]
    return without[0], without[1]


@themed
def plot_jobs(jobs: Dataset) -> Figure:
    """Draw each job by what is lost without the network (across) and without attention (up).

    Args:
        jobs: the result ``jobs``.
    """
    figure, axes = subplots(height=4.9)
    network, attention = lost(jobs)
    for job in JOBS:
        x, y = network.sel(job=job).values, attention.sel(job=job).values
        concept = "ffn" if x.mean() > y.mean() else "attention"
        axes.plot(x, y, "o", color=COLOURS[concept], alpha=0.4, markersize=5, mew=0)
        axes.plot(
            x.mean(), y.mean(), "D", color=COLOURS[concept], mec=theme().ink, markersize=9, zorder=4
        )
        dx, dy, side = _PLACES[job]
        axes.text(
            x.mean() + dx, y.mean() + dy, JOB_NAMES[job], ha=side, va="center", fontsize=11
        )  # fmt: skip
    axes.plot([-0.05, 1.12], [-0.05, 1.12], color=theme().faint, linewidth=1, zorder=0)
    for across, up, side, text in (
        (0.22, 1.06, "center", "moving"),
        (1.05, 0.14, "right", "transforming"),
        (1.02, 1.06, "right", "both"),
    ):
        axes.text(across, up, text, ha=side, va="center", fontsize=13, style="italic", alpha=0.55)
    axes.set_xlim(-0.07, 1.08)
    axes.set_ylim(-0.07, 1.12)
    axes.set_aspect("equal")
    axes.set_xlabel("accuracy lost without the network")
    axes.set_ylabel("accuracy lost without attention")
    return figure


@themed
def plot_taken(jobs: Dataset) -> Figure:
    """Draw for each job how the loss rises without a part: trained without it, and taken away afterwards.

    Args:
        jobs: the result ``jobs``.
    """
    figure, panels = subplots(2, 1, height=3.0, sharex=True)
    whole = jobs.loss.sel(arm="whole")
    for axes, part, concept, instead in zip(
        panels, ("network", "attention"), ("ffn", "attention"), ("heads", "neurons"), strict=True
    ):
        rises = {
            "trained": jobs.loss.sel(arm=instead) - whole,
            "ablated": jobs.taken.sel(part=part),
        }
        for row, job in enumerate(JOBS):
            for how, marker, colour, shift in (
                ("trained", "o", theme().ink, -0.16),
                ("ablated", "^", COLOURS[concept], 0.16),
            ):
                values = rises[how].sel(job=job).values
                height = np.full_like(values, row + shift)
                axes.plot(values, height, marker, color=colour, alpha=0.3, markersize=5, mew=0)
                axes.plot(
                    values.mean(), row + shift, marker, color=colour, markersize=8,
                    mec=theme().ink, zorder=4, label=_HOW[how] if row == 0 else "_nolegend_",
                )  # fmt: skip
        axes.axvline(0, color=theme().faint, linewidth=1, zorder=0)
        axes.set_yticks(range(len(JOBS)), list(JOB_NAMES.values()))
        axes.set_ylim(len(JOBS) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    panels[0].set_xlabel("rise of the loss without the network (nats)")
    panels[1].set_xlabel("rise of the loss without attention (nats)")
    panels[0].tick_params(labelbottom=True)
    panel_letters(panels)
    return figure


_HOW = {"trained": "trained without", "ablated": "taken away afterwards"}


@themed
def plot_instead(instead: Dataset) -> Figure:
    """Draw what stands in the place of the network: accuracy on the table, and loss on text.

    Args:
        instead: the result ``instead``.
    """
    figure, panels = subplots(2, 1, height=1.9)
    names = {name: NAMES[name] for name in instead.arm.values}
    names["whole"] = "the network"
    concepts = {names[name]: CONCEPTS[name] for name in names}
    for axes, job, values, label in (
        (panels[0], "table", instead.accuracy, "accuracy, table"),
        (panels[1], "text", instead.loss, "loss on text (nats)"),
    ):
        groups = {names[name]: values.sel(job=job, arm=name).values for name in names}
        seed_strip(axes, groups, label=label, concepts=concepts)
    panel_letters(panels)
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
        _zero(axes)
    panels[0].legend(loc="upper left")
    panel_letters(panels)
    return figure


def _zero(axes: Axes) -> None:
    axes.axhline(0, color=theme().faint, linewidth=1, zorder=0)
