"""Figures about schedules of the learning rate: measurements in, drawings out.

Arrays have their seeds first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from measured_transformer.chapters.schedules.measure import Trial
from measured_transformer.figures.plots import (
    heat_map,
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed
from measured_transformer.training.schedules import Schedule

Array = Float[np.ndarray, "..."]

CONCEPTS: Mapping[str, str] = {
    "warm-up and root": "residual",
    "constant": "attention",
    "exponential": "ffn",
    "final decay": "norm",
    "warm-up alone": "learned",
    "cosine": "sinusoidal",
    "straight line": "alibi",
    "stairs": "rotary",
}
"""Schedule -> key of the palette."""


@themed
def plot_shapes(panels: Sequence[Mapping[str, Schedule]], steps: int) -> Figure:
    """Draw the factor of the rate over the steps, a panel for each group of schedules."""
    figure, axes = subplots(len(panels), 1, height=2.7, sharex=True, squeeze=False)
    for each, group in zip(axes[:, 0], panels, strict=True):
        for name, schedule in group.items():
            factors = [schedule(step) for step in range(steps)]
            each.plot(range(steps), factors, **look(CONCEPTS[name]), markevery=25, label=name)
        each.set_ylim(-0.03, 1.05)
        each.set_ylabel("rate / peak")
        legend_above(each, columns=2)
    axes[-1, 0].set_xlabel("step")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_two_branches(width: int, warmups: Sequence[int], steps: int) -> Figure:
    """Draw the schedule of the original Transformer for several warm-ups, and the peaks' common line.

    The first warm-up's two branches are drawn on past the point where they meet.
    """
    figure, axes = subplots(height=3.6)
    number = np.arange(1, steps + 1)
    for warmup, concept in zip(warmups, ("residual", "learned", "alibi"), strict=False):
        rise, fall = number * warmup**-1.5 * width**-0.5, (number * width) ** -0.5
        if warmup == warmups[0]:
            axes.plot(number, rise, color=theme().ink, linewidth=1, linestyle="--")
            axes.plot(number, fall, color=theme().ink, linewidth=1, linestyle=":")
            axes.text(warmup * 1.45, rise[warmup] * 1.33, "∝ step", fontsize=11)
            axes.text(warmup * 1.9, fall[int(warmup * 1.9)] * 1.12, "∝ 1/√step", fontsize=11)
        axes.plot(
            number,
            np.minimum(rise, fall),
            color=COLOURS[concept],
            label=f"{warmup} steps of warm-up",
        )
        axes.plot(warmup, (width * warmup) ** -0.5, "o", color=COLOURS[concept], markersize=8)
    axes.set_ylim(0, 1.5 * (width * warmups[0]) ** -0.5)
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate")
    legend_above(axes, columns=1)
    return figure


@themed
def plot_trials(tried: Mapping[str, Sequence[Trial]]) -> Figure:
    """Draw the final loss of every trial over its peak rate, a panel a schedule, its choice circled."""
    figure, axes = subplots(2, 2, height=2.7, sharex=True, sharey=True)
    markers = "osD"
    for each, (name, found) in zip(axes.flat, tried.items(), strict=True):
        colour = COLOURS[CONCEPTS[name]]
        names = list(dict.fromkeys(trial.shape for trial in found))
        for shape, marker in zip(names, markers, strict=False):
            of = [trial for trial in found if trial.shape == shape]
            rates = [trial.rate for trial in of]
            for seed in zip(*(trial.losses for trial in of), strict=True):
                each.plot(rates, seed, marker, color=colour, markersize=4, alpha=0.4, mew=0)
            style = (
                "-:"[shape != names[0]] if len(names) < 3 else ("-", "--", ":")[names.index(shape)]
            )
            label = shape.partition("-")[2] if "-" in shape else ""
            each.plot(
                rates,
                [trial.loss for trial in of],
                linestyle=style,
                marker=marker,
                markersize=5,
                color=colour,
                label=label or "_nolegend_",
            )
        chosen = min(found, key=lambda trial: trial.loss)
        each.plot(
            chosen.rate,
            chosen.loss,
            "o",
            mfc="none",
            mec=theme().ink,
            mew=1.8,
            markersize=14,
            zorder=5,
        )
        each.set_xscale("log")
        each.set_yscale("log")
        each.set_title(name, fontsize=11)
        if len(names) > 1:
            each.legend(loc="lower left", fontsize=9, handlelength=1.6)
    for each in axes[-1]:
        each.set_xlabel("peak rate")
    for each in axes[:, 0]:
        each.set_ylabel("final loss (nats)")
    return figure


@themed
def plot_tournament(settings: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Draw the final loss of every seed, a panel a setting, a row a schedule."""
    rows = [len(groups) for groups in settings.values()]
    figure, axes = subplots(
        len(settings), 1, height=0.42 * max(rows) + 0.75, squeeze=False, height_ratios=rows
    )
    for each, (name, groups) in zip(axes[:, 0], settings.items(), strict=True):
        seed_strip(each, groups, label="", concepts=CONCEPTS)
        each.set_xlim(left=0)
        each.set_title(name, fontsize=11)
    axes[-1, 0].set_xlabel("final loss (nats)")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_constants_of_decay(
    losses: Array, rates: Sequence[float], constants: Sequence[float]
) -> Figure:
    """Draw the final loss for each time constant (row) and peak rate (column), written into the cells."""
    figure, axes = subplots(height=2.9)
    heat_map(axes, losses, label="final loss (nats)", x_label="peak rate", y_label="time constant")
    axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axes.set_yticks(range(len(constants)), [f"{steps:g} steps" for steps in constants])
    middle = (np.nanmin(losses) + np.nanmax(losses)) / 2
    for (row, column), loss in np.ndenumerate(losses):
        shade = "#ffffff" if loss < middle else "#111111"
        axes.text(column, row, f"{loss:.2f}", ha="center", va="center", color=shade)
    return figure


@themed
def plot_budget(
    tried: Mapping[str, Sequence[tuple[float, float, bool]]], failing: Mapping[str, float]
) -> Figure:
    """Draw final loss over summed rate, every run: filled where the peak was not too high, else crosses.

    Args:
        tried: name of the schedule -> (sum of the rates, final loss as a share of the cost of guessing,
            whether the peak was too high).
        failing: name -> the share above which a run has failed; drawn as lines.
    """
    figure, axes = subplots(height=4.2)
    for name, runs in tried.items():
        look_of = look(CONCEPTS[name])
        for high, style in ((False, look_of["marker"]), (True, "x")):
            of = [(x, y) for x, y, too_high in runs if bool(too_high) is high]
            if of:
                x, y = zip(*of, strict=True)
                label = name if not high else "_nolegend_"
                axes.plot(
                    x, y, style, color=look_of["color"], alpha=0.65, markersize=6, label=label
                )
    for name, level in failing.items():
        axes.axhline(level, color=theme().ink, linewidth=1, linestyle="--")
        axes.annotate(
            name,
            (1, level),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=10,
        )
    axes.set_xscale("log")
    axes.set_xlabel("sum of the rates over the training")
    axes.set_ylabel("final loss / cost of guessing")
    axes.set_ylim(bottom=0)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_curves(panels: Mapping[str, Mapping[str, Array]], levels: Mapping[str, float]) -> Figure:
    """Draw training losses over the steps, a panel a task, every seed faint, and the level to be reached.

    Args:
        panels: name of the task -> name of the schedule -> (seed, step) losses, smoothed.
        levels: name of the task -> the fixed loss.
    """
    figure, axes = subplots(len(panels), 1, height=3.0, sharex=True, squeeze=False)
    for place, (each, (task, arms)) in enumerate(zip(axes[:, 0], panels.items(), strict=True)):
        for name, losses in arms.items():
            seed_lines(
                each,
                np.arange(1, losses.shape[1] + 1),
                losses,
                concept=CONCEPTS[name],
                label=name if place == 0 else "",
            )
        each.axhline(levels[task], color=theme().ink, linewidth=1, linestyle="--")
        each.set_ylabel("training loss (nats)")
        each.set_ylim(bottom=0)
        each.text(0.98, 0.9, task, transform=each.transAxes, ha="right")
    legend_above(axes[0, 0], columns=2)
    axes[-1, 0].set_xlabel("steps")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_generalisation(paths: Mapping[str, tuple[Array, Array]], level: float) -> Figure:
    """Draw validation over training loss as training goes on, every seed, with the level of comparison.

    Args:
        paths: name of the schedule -> training and validation losses, each (seed, evaluation).
        level: the mean training loss at which the gaps are read.
    """
    figure, axes = subplots(height=3.6)
    for name, (training, validation) in paths.items():
        style = look(CONCEPTS[name])
        for place, (x, y) in enumerate(zip(training, validation, strict=True)):
            _path(axes, x, y, style["color"], name if place == 0 else "")
    top = 6 * level  # what lies before is the same for all
    axes.plot([0, top], [0, top], color=theme().ink, linewidth=1, linestyle="--")
    axes.axvline(level, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xlim(top, 0)
    axes.set_ylim(0, 1.4 * top)
    axes.set_xlabel("training loss (nats), falling as training goes on")
    axes.set_ylabel("validation loss (nats)")
    legend_above(axes)
    return figure


def _path(axes: Axes, x: Array, y: Array, colour: str, label: str) -> None:
    axes.plot(x, y, color=colour, linewidth=1.4, alpha=0.75, label=label or "_nolegend_")
    axes.plot(x[-1], y[-1], "o", color=colour, markersize=6)
