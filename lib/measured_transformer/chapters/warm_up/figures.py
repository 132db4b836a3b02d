"""Figures about warm-up: measurements in, drawings out. Arrays have their seeds first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed

Array = Float[np.ndarray, "..."]
Events = Bool[np.ndarray, "step"]
CONCEPTS: Mapping[str, str] = {
    "none": "attention",
    "warm": "residual",
    "clip": "norm",
    "pre": "ffn",
}
"""What an arm is drawn as, the same on all figures: at once, warm-up, clipped, pre-norm."""
_STRIP = ("attention", "residual", "norm", "none", "learned", "alibi", "ffn")


@themed
def plot_first_steps(
    gradients: Mapping[str, Array],
    updates: Mapping[str, Array],
    shifts: Mapping[str, Array],
    spreads: Mapping[str, Array],
    steps: Sequence[int],
    labels: Mapping[str, str],
) -> Figure:
    """Draw what happens in the first steps, one panel a quantity.

    Args:
        gradients: arm -> (seed, step) norm of the gradient at every step; forty of them are drawn.
        updates: arm -> (seed, look) length of the update after each look.
        shifts: arm -> (seed, look) how far that update moves the predictions, in nats.
        spreads: arm -> (seed, look) share of the last state that tells positions apart.
        steps: number of updates made before each look.
        labels: arm -> name.
    """
    figure, axes = subplots(4, 1, height=2.2)
    taken = next(iter(gradients.values())).shape[1]
    every = np.unique(np.geomspace(1, taken, 40).astype(int)) - 1  # evenly on the axis
    sampled = {arm: norms[:, every] for arm, norms in gradients.items()}
    for panel, (found, across, name) in zip(
        axes,
        (
            (sampled, every, "gradient norm"),
            (updates, steps, "update norm"),
            (shifts, steps, "shift of the\nanswers (nats)"),
            (spreads, steps, "positions apart"),
        ),
        strict=True,
    ):
        for arm, values in found.items():
            seed_lines(
                panel, 1 + np.asarray(across), values, concept=CONCEPTS[arm], label=labels[arm]
            )
        _both_logarithmic(panel)
        panel.set_ylabel(name)
    axes[-1].set_xlabel("step")
    legend_above(axes[0], columns=3)
    panel_letters(axes)
    return figure


@themed
def plot_curvature(
    raw: Mapping[str, Array],
    stability: Mapping[str, Array],
    steps: Sequence[int],
    labels: Mapping[str, str],
) -> Figure:
    """Draw the largest eigenvalue of the Hessian, and where the rate stands against Adam's limit.

    Args:
        raw: arm -> (seed, look) largest eigenvalue of the Hessian.
        stability: arm -> (seed, look) rate times preconditioned eigenvalue, over the limit.
        steps: number of updates made before each look.
        labels: arm -> name.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.7)
    for panel, found in ((top, raw), (bottom, stability)):
        for arm, values in found.items():
            seed_lines(
                panel, 1 + np.asarray(steps), values, concept=CONCEPTS[arm], label=labels[arm]
            )
        _both_logarithmic(panel)
    bottom.axhline(1, color=theme().ink, linestyle="--", linewidth=1)
    top.set_ylabel("largest eigenvalue")
    bottom.set_ylabel("rate / largest\nstable rate")
    bottom.set_xlabel("step")
    legend_above(top, columns=3)
    panel_letters((top, bottom))
    return figure


@themed
def plot_bands(
    losses: Mapping[str, Array], rates: Sequence[float], labels: Mapping[str, str], success: float
) -> Figure:
    """Draw the loss reached at each peak rate, one panel an arm.

    Args:
        losses: arm -> (seed, rate); names that begin with "pre" have the colour of pre-norm.
        rates: the grid.
        labels: arm -> name.
        success: loss below which a run has succeeded.
    """
    figure, axes = subplots(len(losses), 1, height=1.75, sharex=True, sharey=True)
    for panel, (arm, values) in zip(axes, losses.items(), strict=True):
        concept = "ffn" if arm.startswith("pre") else "residual"
        seed_lines(panel, np.array(rates), values, concept=concept, label="", marker_every=1)
        panel.axhspan(1e-4, success, color=COLOURS[concept], alpha=0.15, linewidth=0)
        _both_logarithmic(panel)
        panel.set_ylim(1e-4, 4)
        panel.set_ylabel("loss (nats)")
        panel.set_xticks(list(rates), [f"{rate:g}" for rate in rates])
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_title(labels[arm], loc="right")
    axes[-1].set_xlabel("peak learning rate")
    panel_letters(axes)
    return figure


@themed
def plot_remedies(
    losses: Mapping[str, Array], spreads: Mapping[str, Array], reference: float
) -> Figure:
    """Draw (a) the final loss under each remedy and (b) that loss against the spread of positions early on.

    Args:
        losses: name of the remedy -> one loss a seed.
        spreads: name of the remedy -> one spread a seed; there may be fewer than losses.
        reference: loss to mark: best possible without positions.
    """
    figure, (top, bottom) = subplots(2, 1, height=3.8, height_ratios=(1, 1))
    concepts = dict(zip(losses, _STRIP, strict=True))
    seed_strip(top, losses, label="final loss (nats)", concepts=concepts, reference=reference)
    top.set_xlim(-0.04, max(float(np.max(values)) for values in losses.values()) + 0.06)
    for name, concept in concepts.items():
        style = {**look(concept), "linestyle": "none"}
        bottom.plot(spreads[name], losses[name][: len(spreads[name])], **style, label=name)
    _both_logarithmic(bottom)
    bottom.set_xlabel("positions apart after 20 steps")
    bottom.set_ylabel("final loss (nats)")
    legend_above(bottom, columns=3)
    panel_letters((top, bottom))
    return figure


@themed
def plot_spikes(losses: Array, jumps: Array, events: Events, curve: Mapping[str, Array]) -> Figure:
    """Draw one run with its spikes, and how well they are foretold.

    Args:
        losses: of one run, a value a step.
        jumps: how far the gradient norm jumped at each step, in powers of ten.
        events: whether the loss spikes at each step.
        curve: name -> (seed,) area under the curve.
    """
    figure, (top, middle, bottom) = subplots(3, 1, height=2.3)
    steps = np.arange(len(losses))
    top.plot(steps, losses, color=COLOURS["residual"], linewidth=1.2)
    top.plot(
        steps[events], losses[events], "v", color=COLOURS["attention"], label="spike of the loss"
    )
    top.set_yscale("log")
    top.set_ylabel("loss (nats)")
    middle.plot(steps, jumps, color=COLOURS["norm"], linewidth=1.2)
    for step in steps[events]:
        middle.axvline(step, color=COLOURS["attention"], alpha=0.35, linewidth=1)
    middle.set_ylabel("jump of gradient\n(powers of ten)")
    middle.set_xlabel("step")
    concepts = dict.fromkeys(curve, "norm")
    seed_strip(bottom, curve, label="area under the curve", concepts=concepts, reference=0.5)
    bottom.set_xlim(0, 1)
    legend_above(top, columns=1)
    panel_letters((top, middle, bottom))
    return figure


@themed
def plot_explosion(norms: Mapping[str, Array], concepts: Mapping[str, str]) -> Figure:
    """Draw the gradient norm of each block at initialisation.

    Args:
        norms: name -> (seed, block).
        concepts: name -> key of `COLOURS`.
    """
    figure, axes = subplots(height=3.3)
    for name, values in norms.items():
        seed_lines(axes, 1 + np.arange(values.shape[1]), values, concept=concepts[name], label=name)
    axes.set_yscale("log")
    axes.set_xlabel("block")
    axes.set_ylabel("norm of its gradient")
    legend_above(axes, columns=3)
    return figure


def _both_logarithmic(axes: Axes) -> None:
    """Logarithmic axes whose labels do not run into each other, however few powers of ten they show."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_minor_formatter(NullFormatter())
        if high / low < 100:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")
