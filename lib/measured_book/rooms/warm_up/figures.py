"""Figures about warm-up: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

CONCEPTS: Mapping[str, str] = {
    "at once": "attention",
    "warm-up": "residual",
    "clipped": "none",
    "small branches": "learned",
    "pre-norm": "ffn",
}
"""What an arm is drawn as, the same in all figures."""
SIGNALS: Mapping[str, tuple[str, str]] = {
    "update": ("update", "residual"),
    "score": ("largest score", "norm"),
    "loss": ("loss itself", "none"),
    "gradient": ("gradient norm", "attention"),
    "surprise": ("surprise", "learned"),
    "log_z": (r"$|\ln Z|$", "alibi"),
}
"""A signal -> its name in figures, and what it is drawn as."""
_NAMES: Mapping[str, str] = {
    "at once": "no warm-up",
    "second filled": "only $v$ filled",
    "first filled": "only $m$ filled",
    "both filled": "both filled",
    "rectified": "rectified Adam",
}


@themed
def plot_remedies(remedies: Dataset) -> Figure:
    """Draw for every arm and learning rate how many runs solve the task, and their median steps."""
    figure, axes = subplots(height=4.6)
    _map(axes, remedies)
    axes.axhline(remedies.sizes["arm"] - 1.5, color=theme().paper, linewidth=3)
    return figure


@themed
def plot_high(high: Dataset) -> Figure:
    """Draw the same for pre-norm at high learning rates."""
    figure, axes = subplots(height=2.3)
    _map(axes, high)
    return figure


def _map(axes: Axes, result: Dataset) -> None:
    """A table of cells: colour and upper line the share that solves the task, lower line the median steps."""
    shares = result.solved.mean("seed").transpose("arm", "rate").values
    steps = result.steps.median("seed").transpose("arm", "rate").values
    axes.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    for (i, j), share in np.ndenumerate(shares):
        ink = "black" if share > 0.6 else "white"
        text = f"{share:.0%}" if share < 0.5 else f"{share:.0%}\n{steps[i, j]:.0f}"
        axes.text(j, i, text, ha="center", va="center", color=ink, fontsize=7.5, linespacing=1.1)
    axes.set_xticks(range(shares.shape[1]), [f"{1000 * rate:g}" for rate in result.rate.values])
    arms = result.arm.values.tolist()
    axes.set_yticks(range(len(arms)), [_NAMES.get(arm, arm) for arm in arms])
    axes.set_xlabel("peak learning rate, thousandths")
    axes.tick_params(length=0)


@themed
def plot_first_steps(first_steps: Dataset) -> Figure:
    """Draw what happens in the first forty steps, one panel per quantity, every seed."""
    figure, axes = subplots(2, 2, height=2.5, sharex=True)
    quantities = (
        ("gradient", "step", "gradient norm"),
        ("update", "look", "length of the update"),
        ("shift", "look", "shift of the answers, nats"),
        ("apart", "look", "positions apart"),
    )
    for panel, (name, axis, label) in zip(axes.ravel(), quantities, strict=True):
        for arm, concept in CONCEPTS.items():
            values = first_steps[name].sel(arm=arm).transpose("seed", axis).values
            across = 1 + first_steps[axis].values
            seed_lines(panel, across, values, concept=concept, label=_NAMES.get(arm, arm))
        _logarithmic(panel)
        panel.set_ylabel(label)
    for panel in axes[1]:
        panel.set_xlabel("step")
    axes[0, 1].legend(
        loc="lower right", bbox_to_anchor=(1, 1.08), ncols=3, borderaxespad=0.2, fontsize=8
    )
    panel_letters(axes)
    return figure


def _logarithmic(axes: Axes) -> None:
    """Logarithmic axes whose labels do not run into each other, however few powers of ten they show."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        axis.set_minor_formatter(NullFormatter())
        if high / low < 100:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")


@themed
def plot_curvature(curvature: Dataset) -> Figure:
    """Draw the learning rate in units of the largest stable one: a row per arm, dots early, rings later."""
    figure, axes = subplots(height=2.4)
    early, later = curvature.look.values.tolist()
    arms = curvature.arm.values.tolist()
    for row, arm in enumerate(arms):
        colour = look(CONCEPTS[arm])["color"]
        for at, shift, face in ((early, -0.13, colour), (later, 0.13, "none")):
            values = curvature.overshoot.sel(arm=arm, look=at).values
            height = np.full(len(values), row + shift)
            axes.plot(values, height, "o", color=colour, mfc=face, markersize=6)
    axes.axvline(1, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(arms)), [_NAMES.get(arm, arm) for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("learning rate / largest stable rate at this curvature")
    return figure


@themed
def plot_runs(spikes: Dataset) -> Figure:
    """Draw the loss of every recorded run, at the rate at which models spike and at a quarter of it.

    One seed is drawn stronger in both panels: that with the most spikes at the high rate.
    """
    figure, axes = subplots(2, 1, height=2.1, sharex=True, sharey=True)
    shown = int(spikes.spikes.sel(run="high").argmax("seed"))
    for panel, (run, concept) in zip(
        axes, (("high", "attention"), ("calm", "residual")), strict=True
    ):
        values = spikes.worst_loss.sel(run=run).transpose("seed", "bin").values
        for row in values:
            panel.plot(spikes.bin.values, row, color=COLOURS[concept], alpha=0.3, linewidth=0.7)
        panel.plot(spikes.bin.values, values[shown], color=theme().ink, linewidth=1.5)
        panel.axhline(np.log(5), color=theme().ink, linestyle="--", linewidth=1)
        panel.set_yscale("log")
        panel.set_ylim(1e-5, 4)
        panel.set_ylabel("loss, nats")
    axes[0].text(495, 2.0, "guessing", ha="right", va="bottom", color=theme().ink)
    axes[-1].set_xlabel("step")
    axes[0].set_xlim(0, 500)
    panel_letters(axes)
    return figure


@themed
def plot_around(spikes: Dataset) -> Figure:
    """Draw all signals around the first spike of every run, in powers of ten above where they were before."""
    figure, axes = subplots(2, 3, height=2.1, sharex=True)
    steps = spikes.around.values
    for panel, (signal, (name, concept)) in zip(axes.ravel(), SIGNALS.items(), strict=True):
        values = spikes.around_first.sel(signal=signal).dropna("seed").transpose("seed", "around")
        panel.plot(steps, values.values.T, color=COLOURS[concept], alpha=0.35, linewidth=0.7)
        panel.plot(steps, values.mean("seed").values, color=theme().ink, linewidth=1.8)
        panel.axvline(0, color=theme().ink, linestyle="--", linewidth=1)
        panel.set_title(name, loc="right")
    for panel in axes[:, 0]:
        panel.set_ylabel("powers of ten")
    axes[1, 1].set_xlabel("steps from the beginning of the spike")
    panel_letters(axes)
    for panel, (name, _) in zip(axes.ravel(), SIGNALS.values(), strict=True):
        panel.set_title(name, loc="right")
    return figure


@themed
def plot_alarms(
    spikes: Dataset, shares: Mapping[str, DataArray | Sequence[float]], budget: float
) -> Figure:
    """Draw what alarms are worth: spikes warned of against false alarms, and each seed at one budget of these.

    Args:
        spikes: the recorded runs.
        shares: signal -> the share of its spikes that each seed is warned of within the budget.
        budget: false alarms in a thousand calm steps.
    """
    figure, (left, right) = subplots(1, 2, height=3.3)
    calm = float(spikes.calm.sum())
    number = float(spikes.spikes.sel(run="high").sum())
    for signal, (name, concept) in SIGNALS.items():
        here = spikes.sel(signal=signal)
        false = 1000 * here.false_alarms.sum(("seed", "run")) / calm
        warned = here.warned.sel(run="high").sum("seed") / number
        style = look(concept) | {"marker": ""}
        left.plot(false.values, warned.values, **style, linewidth=1.8, label=name)
    left.axvline(budget, color=theme().ink, linestyle=":", linewidth=1)
    left.set_xlim(0, 25)
    left.set_ylim(0, 1.02)
    left.set_xlabel("false alarms in 1000 calm steps")
    left.set_ylabel("share of spikes warned of")
    left.legend(loc="lower right", fontsize=7.5)
    groups = {SIGNALS[signal][0]: np.asarray(shares[signal]) for signal in SIGNALS}
    concepts = dict(SIGNALS.values())
    seed_strip(right, groups, label="share of a run's spikes", concepts=concepts)
    right.set_xlim(-0.1, 1.1)
    panel_letters((left, right))
    return figure


@themed
def plot_cures(spikes: Dataset, cures: Dataset) -> Figure:
    """Draw the number of spikes of every seed at the high rate: nothing changed, and with one thing changed."""
    names = {"slow average": r"$\beta_2 = 0.999$"}
    groups = {"nothing changed": spikes.spikes.sel(run="high", seed=cures.seed).values}
    groups |= {names.get(c, c): cures.spikes.sel(cure=c).values for c in cures.cure.values.tolist()}
    concepts = dict(zip(groups, ("attention", "none", "learned", "alibi", "norm"), strict=True))
    figure, axes = subplots(height=2.5)
    seed_strip(axes, groups, label="spikes in 500 steps", concepts=concepts)
    axes.set_xlim(-0.3, None)
    return figure
