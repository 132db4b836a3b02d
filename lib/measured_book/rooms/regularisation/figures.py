"""Figures of the chapter on what keeps a model from over-fitting."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed, tint
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.figures.diagrams import box, canvas, plus, stream, wire
from measured_book.figures.plots import legend_above, panel_letters, seed_lines, subplots
from measured_book.rooms.regularisation.measure import (
    MOMENTUM,
    NOISY,
    TURNING_RATE,
    equilibrium_turn,
)
from measured_book.rooms.regularisation.reading import stopped

NAMES = {
    "none": "no remedy",
    "stop": "stop early",
    "smoothing": "label smoothing",
    "dropout": "dropout",
    "decay": "weight decay",
}
CONCEPTS = {
    "none": "none",
    "stop": "ffn",
    "smoothing": "norm",
    "dropout": "residual",
    "decay": "attention",
}
KINDS = {
    "40": "every pair 40 times",
    "10": "every pair 10 times",
    "4": "every pair 4 times",
    "new": "new pairs at every step",
}


# The four remedies --------------------------------------------------------------------------------


def _held(remedies: Dataset, arm: str) -> DataArray:
    """Loss on unseen pairs at the end, over seeds and passes."""
    found = stopped(remedies) if arm == "stop" else remedies.held.sel(arm=arm)
    return found.transpose("seed", "passes")


@themed
def plot_remedies(remedies: Dataset) -> Figure:
    """Draw for each kind of data and each remedy the losses on seen and on unseen pairs, and their gap.

    Args:
        remedies: the result of this name.
    """
    figure, panels = subplots(2, 2, height=2.35, sharex=True, sharey=True)
    for letter, axes, passes in zip("abcd", panels.flat, KINDS, strict=True):
        axes.axvline(NOISY.bayes_loss(), color=theme().ink, linestyle=":", linewidth=1.2)
        for row, arm in enumerate(NAMES):
            style = look(CONCEPTS[arm])
            held = _held(remedies, arm).sel(passes=passes).values
            _dots(axes, held, row, CONCEPTS[arm])
            if arm == "stop":
                continue  # the model of that step was not kept
            trained = float(remedies.trained.sel(passes=passes, arm=arm).mean())
            axes.plot([trained, held.mean()], [row, row], color=style["color"], linewidth=2.2)
            axes.plot(trained, row, "|", color=style["color"], markersize=11, mew=2.2)
        axes.set_title(f"({letter}) {KINDS[passes]}", loc="left")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    panels[0, 0].set_yticks(range(len(NAMES)), NAMES.values())
    panels[0, 0].set_ylim(len(NAMES) - 0.5, -0.5)
    panels[0, 0].set_xlim(left=0)
    for axes in panels[-1]:
        axes.set_xlabel("loss (nats per token)")
    return figure


def _dots(axes: Axes, values: Float[ndarray, "seed"], row: int, concept: str) -> None:
    """A dot for each seed and a large mark for their mean, in one row."""
    style = look(concept)
    spread = np.linspace(-0.2, 0.2, len(values))
    axes.plot(values, row + spread, "o", color=style["color"], alpha=0.5, markersize=4, mew=0)
    axes.plot(
        values.mean(),
        row,
        style["marker"],
        color=style["color"],
        mec=theme().ink,
        markersize=8,
        zorder=4,
    )


@themed
def plot_passes(remedies: Dataset) -> Figure:
    """Draw over the number of passes: losses without a remedy, and what each remedy takes off.

    Args:
        remedies: the result of this name.
    """
    figure, axes = subplots(1, 2, height=3.3)
    at = [1 if passes == "new" else int(passes) for passes in remedies.passes.values]
    order = np.argsort(at)
    x = np.array(at)[order]
    none = {
        "unseen pairs": (remedies.held.sel(arm="none"), "none"),
        "seen pairs": (remedies.trained.sel(arm="none"), "random"),
    }
    for name, (values, concept) in none.items():
        rows = values.transpose("seed", "passes").values[:, order]
        seed_lines(axes[0], x, rows, concept=concept, label="", marker_every=1)
        above = name == "unseen pairs"
        axes[0].annotate(
            name,
            (x[2], rows.mean(0)[2]),
            xytext=(-4, 10 if above else -30),
            textcoords="offset points",
            ha="right" if above else "center",
            color=look(concept)["color"],
        )
    axes[0].axhline(NOISY.bayes_loss(), color=theme().ink, linestyle=":", linewidth=1.2)
    axes[0].set_ylabel("loss without a remedy (nats)")
    axes[0].set_ylim(bottom=0)
    for arm in list(NAMES)[1:]:
        rows = (_held(remedies, "none") - _held(remedies, arm)).values[:, order]
        label = NAMES[arm]
        seed_lines(axes[1], x, rows, concept=CONCEPTS[arm], label=label, marker_every=1)
    axes[1].axhline(0, color=theme().ink, linewidth=1)
    axes[1].set_ylabel("loss reduction by a remedy (nats)")
    axes[1].legend(loc="upper left", fontsize=9)
    for panel in axes:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(FixedLocator(list(x)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xticks(x, ["new", *(str(n) for n in x[1:])])
        panel.set_xlabel("passes over the pairs")
    panel_letters(axes)
    return figure


@themed
def plot_curves(remedies: Dataset, hastened: Dataset) -> Figure:
    """Draw the loss on unseen pairs over training, and where the mean without a remedy is lowest.

    Args:
        remedies: the result of this name.
        hastened: the same, at higher rates where pairs come 40 times.
    """
    figure, panels = subplots(1, 2, height=3.3, sharey=True)
    steps = remedies.step.values
    for letter, axes, passes in zip("ab", panels, ("40", "new"), strict=True):
        here = remedies.curve.sel(passes=passes)
        curves = {
            "no remedy, its best rate": (here.sel(arm="none"), "none"),
            "weight decay": (here.sel(arm="decay"), "attention"),
        }
        if passes == "40":
            for rate, concept in zip(hastened.rate.values, ("residual", "rotary"), strict=True):
                label = f"no remedy, rate {rate:g}, constant"
                curves[label] = hastened.curve.sel(rate=rate), concept
        for label, (values, concept) in curves.items():
            rows = values.transpose("seed", "step").values
            seed_lines(axes, steps, rows, concept=concept, label=label, marker_every=5)
            best = int(rows.mean(0).argmin())
            if concept != "attention":
                axes.plot(
                    steps[best],
                    rows.mean(0)[best],
                    "o",
                    markersize=14,
                    mfc="none",
                    mec=theme().ink,
                    mew=2,
                    zorder=5,
                )
        axes.axhline(NOISY.bayes_loss(), color=theme().ink, linestyle=":", linewidth=1.2)
        axes.set_title(f"({letter}) {KINDS[passes]}", loc="left")
        axes.set_xlabel("step")
        axes.set_ylim(0, 3)
    panels[0].set_ylabel("loss on unseen pairs (nats)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=9)
    return figure


# Dropout ------------------------------------------------------------------------------------------


@themed
def plot_by_hand(
    x: Float[ndarray, "entry"], outputs: Float[ndarray, "mask entry"], mean: Float[ndarray, "entry"]
) -> Figure:
    """Draw eight numbers, what one mask leaves of them, and all masks with their mean.

    Args:
        x: the numbers.
        outputs: what dropout gives for each mask; the first row is shown on its own.
        mean: exact mean over the masks.
    """
    figure, (above, below) = subplots(2, 1, height=2.3, sharex=True)
    places = np.arange(1, len(x) + 1)
    above.bar(places - 0.2, x, width=0.38, color=tint("none", 0.55), label="before")
    above.bar(places + 0.2, outputs[0], width=0.38, color=COLOURS["residual"], label="one mask")
    for place, after in zip(places, outputs[0], strict=True):
        if after == 0:
            above.text(place + 0.2, 0, "x", ha="center", va="center", fontsize=14)
    for row in outputs:
        below.plot(places, row, "_", color=COLOURS["residual"], markersize=16, alpha=0.5)
    below.plot(places, mean, "D", color=COLOURS["attention"], label="mean over all masks")
    below.plot([], [], "_", color=COLOURS["residual"], markersize=12, label="what a mask gives")
    for axes in (above, below):
        axes.axhline(0, color=theme().ink, linewidth=1)
        axes.set_ylabel("value")
        legend_above(axes, columns=2)
    below.set_xlabel("entry")
    below.set_xticks(places)
    panel_letters((above, below))
    return figure


@themed
def plot_places() -> Figure:
    """Draw the embedding and one layer of the original Transformer with every place that dropout acts in."""
    figure, axes = subplots(height=7.6)
    canvas(axes, width=9.2, height=10.9)
    x, side = 1.9, 5.2
    _flat(axes, (x, 0.5), "embedding + positions")
    stream(axes, (x, 0.85), (x, 10.6))
    _drop(axes, (x, 1.5), "1", "residual")
    heights = (2.2, 6.2)
    for low, concept, first, second in zip(
        heights, ("attention", "ffn"), ("2", "4"), ("3", "5"), strict=True
    ):
        wire(axes, [(x, low), (side, low), (side, low + 0.42)])
        box(axes, (side, low + 0.85), concept)
        wire(axes, [(side, low + 1.26), (side, low + 1.56)], arrow=False)
        _drop(axes, (side, low + 1.8), second, "attention" if concept == "attention" else "ffn")
        wire(axes, [(side, low + 2.04), (side, low + 2.5), (x + 0.27, low + 2.5)])
        _drop(axes, (side + 1.5, low + 0.85), first, concept)
        plus(axes, (x, low + 2.5))
        box(axes, (x, low + 3.2), "norm", width=1.3)
    notes = {
        (x + 0.45, 1.5): "the paper, not in the layer",
        (side + 1.85, heights[0] + 0.85): "weights",
        (side + 0.4, heights[0] + 1.8): "output",
        (side + 1.85, heights[1] + 0.85): "neurons",
        (side + 0.4, heights[1] + 1.8): "output",
    }
    for (across, up), text in notes.items():
        axes.text(across, up, text, va="center", fontsize=11)
    return figure


def _flat(axes: Axes, centre: tuple[float, float], text: str) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - 1.75, centre[1] - 0.35),
            3.5,
            0.7,
            boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=tint("residual"),
            edgecolor=COLOURS["residual"],
            linewidth=2,
            zorder=3,
        )
    )
    axes.text(*centre, text, ha="center", va="center", fontsize=12, zorder=4)


def _drop(axes: Axes, centre: tuple[float, float], number: str, concept: str) -> None:
    axes.plot(
        *centre,
        "o",
        markersize=20,
        color=theme().paper,
        mec=COLOURS[concept],
        mew=2,
        zorder=6,
    )
    axes.text(*centre, number, ha="center", va="center", fontsize=12, fontweight="bold", zorder=7)


@themed
def plot_noise(noise: Dataset, rate: float = 0.1) -> Figure:
    """Draw the share of noise on the stream over the sublayers, with dropout before and after the addition.

    Args:
        noise: the result of this name.
        rate: of dropout, for the growth that the stream alone would give.
    """
    figure, axes = subplots(height=2.9)
    at = noise.passed.values
    for order, concept in (("behind", "attention"), ("before", "residual")):
        rows = noise.noise.sel(order=order).transpose("seed", "passed").values
        seed_lines(axes, at, rows, concept=concept, label=f"dropped {order} the addition")
    axes.plot(
        at,
        (1 - rate) ** -(at + 1.0) - 1,
        color=theme().ink,
        linewidth=1.2,
        linestyle=":",
        label="stream alone, by the formula",
    )
    axes.set_xlabel("sublayers passed")
    axes.set_ylabel("variance over masks /\nsquare of the mean")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", fontsize=9)
    return figure


# Weight decay -------------------------------------------------------------------------------------


@themed
def plot_turning(turning: Dataset) -> Figure:
    """Draw the length of a query matrix over training by its start, and how far a step turns it in the end.

    Args:
        turning: the result of this name.
    """
    figure, (left, right) = subplots(1, 2, height=3.2, width_ratios=(1.25, 1))
    looks = {
        "no decay": "none",
        "three times": "residual",
        "as drawn": "attention",
        "a third": "ffn",
        "no momentum": "rotary",
    }
    steps = turning.step.values
    for start in list(looks)[:4]:
        rows = turning.length.sel(start=start).transpose("seed", "step").values
        seed_lines(left, steps, rows, concept=looks[start], label=start, marker_every=100)
    left.set_yscale("log")
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set_yticks((1, 2, 5, 10, 20), ("1", "2", "5", "10", "20"))
    left.set_xlabel("step")
    left.set_ylabel("length of the matrix")
    left.set_ylim(1, 40)
    left.legend(loc="upper right", fontsize=9, ncols=2, columnspacing=1.0, handlelength=1.6)
    for row, (start, concept) in enumerate(looks.items()):
        degrees = np.degrees(turning.turn.sel(start=start).values)
        _dots(right, degrees, row, concept)
        momentum = 0.0 if start == "no momentum" else MOMENTUM
        if start != "no decay":
            stated = math.degrees(equilibrium_turn(TURNING_RATE, 1.0, momentum))
            right.plot([stated, stated], [row - 0.4, row + 0.4], color=theme().ink, linewidth=2)
    right.set_xscale("log")
    right.set_xticks((0.5, 1, 2, 4, 8), ("0.5", "1", "2", "4", "8"))
    right.xaxis.set_minor_locator(NullLocator())
    right.set_yticks(range(len(looks)), list(looks))
    right.set_ylim(len(looks) - 0.5, -0.5)
    right.grid(visible=False, axis="y")
    right.tick_params(axis="y", length=0)
    right.set_xlabel("turn of a step (degrees)")
    panel_letters((left, right))
    return figure


@themed
def plot_strength(strength: Dataset) -> Figure:
    """Draw the loss on unseen pairs by weight decay and learning rate, where pairs come 40 times.

    Args:
        strength: the result of this name.
    """
    figure, axes = subplots(height=3.3)
    means = strength.held.mean("seed").transpose("decay", "rate").values
    low, high = means.min(), means.max()
    axes.imshow(means, cmap="cividis_r", vmin=low, vmax=high, aspect="auto")
    axes.grid(visible=False)
    for (i, j), loss in np.ndenumerate(means):
        ink = "white" if (loss - low) / (high - low) > 0.5 else "black"
        seeds = strength.held.isel(decay=i, rate=j).values
        axes.text(j, i, f"{loss:.2f}", ha="center", va="bottom", color=ink, fontsize=10)
        spread = f"{seeds.min():.2f} to {seeds.max():.2f}"
        axes.text(j, i, spread, ha="center", va="top", color=ink, fontsize=6.5)
    axes.set_xticks(range(means.shape[1]), [f"{1000 * r:g}" for r in strength.rate.values])
    axes.set_yticks(range(means.shape[0]), [f"{d:g}" for d in strength.decay.values])
    axes.set_xlabel("learning rate, thousandths")
    axes.set_ylabel("weight decay")
    axes.tick_params(length=0)
    return figure


# Label smoothing ----------------------------------------------------------------------------------


@themed
def plot_reliability(remedies: Dataset) -> Figure:
    """Draw what models promise against what they keep, with and without smoothing; all seeds together.

    Args:
        remedies: the result of this name. The area of a mark is the share of answers in its bin.
    """
    figure, panels = subplots(1, 2, height=3.5, sharey=True)
    for letter, axes, passes in zip("ab", panels, ("40", "new"), strict=True):
        axes.plot([0, 1], [0, 1], color=theme().ink, linestyle="--", linewidth=1)
        for arm in ("none", "smoothing"):
            here = remedies.sel(passes=passes, arm=arm)
            style = look(CONCEPTS[arm])
            for seed in here.seed.values:
                x, y, _ = _bins(here.sel(seed=[seed]))
                axes.plot(x, y, color=style["color"], linewidth=0.8, alpha=0.3)
            x, y, share = _bins(here)
            axes.scatter(
                x,
                y,
                s=15 + 260 * share,
                color=style["color"],
                marker=style["marker"],
                alpha=0.85,
                label=NAMES[arm],
                zorder=3,
            )
        axes.set_xlim(0, 1.03)
        axes.set_ylim(0, 1.03)
        axes.set_title(f"({letter}) {KINDS[passes]}", loc="left")
        axes.set_xlabel("predicted probability")
    panels[0].set_ylabel("share of right answers")
    panels[1].legend(loc="lower right", fontsize=9)
    return figure


def _bins(
    here: Dataset, least: float = 0.002
) -> tuple[Float[ndarray, "bin"], Float[ndarray, "bin"], Float[ndarray, "bin"]]:
    """Mean probability, accuracy and share of the answers in each bin that holds some; seeds together."""
    share, promised, kept = (here[n].mean("seed").values for n in ("share", "promised", "kept"))
    there = share > least
    return promised[there] / share[there], kept[there] / share[there], share[there]
