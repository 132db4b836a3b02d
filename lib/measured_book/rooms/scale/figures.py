"""Figures of the chapter on the scale: results in, drawings out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured_transformer.variants.weights import (
    entmax15,
    sigmoid_weights,
    softmax_plus_one,
    sparsemax,
)
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from scipy import stats
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)

ARMS = {"none": "no scale", "root": r"divided by $\sqrt{d_h}$", "norm": "QK-norm"}
"""What is done to scores -> its name in figures."""
CONCEPTS = {
    "none": "attention",
    "root": "residual",
    "norm": "norm",
    "start": "ffn",
    "steps": "alibi",
    "stream": "ffn",
    "head": "residual",
    "width": "none",
}
"""What is done to scores -> how it is drawn, the same in all figures."""
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
def plot_shares(drawn: Dataset, widths: Sequence[int]) -> Figure:
    """Draw the mean weights of a row of ten keys from largest to smallest, without and with the scale."""
    figure, axes = subplots(2, 1, height=2.3, sharex=True, sharey=True)
    for panel, name in zip(axes, ("ordered", "ordered_divided"), strict=True):
        for concept, width in zip(_WIDTHS, widths, strict=False):
            ordered = drawn[name].sel(width=width).transpose("seed", "rank")
            label = f"width {width}"
            seed_lines(panel, drawn["rank"].values, ordered.values, concept=concept, label=label)
        panel.set_ylabel("mean weight")
        panel.set_ylim(0, 1)
    axes[-1].set_xlabel("key, from the largest weight to the smallest")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    legend_above(axes[0])
    panel_letters(axes)
    return figure


@themed
def plot_what_passes(drawn: Dataset, widths: Sequence[int], keys: Sequence[int]) -> Figure:
    """Draw which share of rows lets at most so much through without the scale, a panel a number of keys.

    Diamonds are means; one is the mean of the same rows with the scale.
    """
    figure, axes = subplots(len(keys), 1, height=2.5, sharex=True, squeeze=False)
    share = drawn["percent"].values / 100
    for panel, n in zip(axes[:, 0], keys, strict=True):
        for concept, width in zip(_WIDTHS, widths, strict=False):
            at = drawn.sel(width=width, keys=n)
            through = np.maximum(at.passing.mean("seed").values, 1e-8)
            panel.plot(through, share, **look(concept) | {"marker": ""}, label=f"width {width}")
            mean = float(at.passing_mean.mean())
            height = float(np.interp(mean, through, share))
            diamond = {"marker": "D", "markersize": 8, "mec": theme().ink, "zorder": 4}
            panel.plot(mean, height, color=COLOURS[concept], **diamond)
        panel.axvline(1.0, color=theme().ink, linestyle="--", linewidth=1)
        panel.set_xscale("log")
        panel.set_xlim(1e-4, 20)
        panel.set_ylim(0, 1)
        panel.set_ylabel(f"share of rows\n({n} keys)")
    axes[-1, 0].set_xlabel("gradient let through, relative to the mean with the scale")
    legend_above(axes[0, 0])
    panel_letters(axes[:, 0])
    return figure


def _by_rate(axes: Axes, values: DataArray, arm: str, label: str) -> None:
    rows = values.transpose("seed", "rate").values
    seed_lines(axes, values.rate.values, rows, concept=CONCEPTS[arm], label=label)


@themed
def plot_rates(rates: Dataset, widths: Sequence[int] = (16, 64, 128)) -> Figure:
    """Draw accuracy after equal steps over the learning rate, a panel a width of the heads."""
    figure, axes = subplots(len(widths), 1, height=2.3, sharex=True, sharey=True, squeeze=False)
    for panel, width in zip(axes[:, 0], widths, strict=True):
        for arm, name in ARMS.items():
            _by_rate(panel, rates.accuracy.sel(width=width, arm=arm), arm, name)
        panel.axhline(1 / 8, color=theme().ink, linestyle=":", linewidth=1)
        panel.set_ylim(0, 1.03)
        panel.set_ylabel(f"accuracy\n(heads of {width})")
    axes[-1, 0].set_xscale("log")
    axes[-1, 0].set_xlabel("learning rate")
    legend_above(axes[0, 0])
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_apart(rates: Dataset, apart: Dataset) -> Figure:
    """Draw accuracy over the learning rate where how scores start is taken apart from how far they move."""
    figure, axes = subplots(height=3.4)
    wide = rates.accuracy.sel(width=128)
    names = {
        "root": "soft start, short steps",
        "start": "soft start, long steps",
        "steps": "hard start, short steps",
        "none": "hard start, long steps",
    }
    for arm, name in names.items():
        values = wide.sel(arm=arm) if arm in ARMS else apart.accuracy.sel(arm=arm)
        _by_rate(axes, values, arm, name)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("accuracy")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_growth(growth: Dataset, rates: Dataset) -> Figure:
    """Draw the largest score over the steps of a training, and at the end over the learning rate."""
    figure, (above, below) = subplots(2, 1, height=2.7)
    steps = growth.steps.values
    for arm, name in ARMS.items():
        rows = growth.largest.sel(arm=arm).transpose("seed", "steps").values
        # Step 0 has no place on a logarithmic axis: it stands at 3.
        across = np.where(steps == 0, 3, steps)
        seed_lines(above, across, rows, concept=CONCEPTS[arm], label=name)
        _by_rate(below, rates.largest.sel(width=128, arm=arm), arm, name)
    ticks = [3, *steps[1:]]
    above.set_xscale("log")
    above.set_xticks(ticks, [f"{step}" for step in steps])
    above.minorticks_off()
    above.set_xlabel("step")
    below.set_xscale("log")
    below.set_xlabel("learning rate")
    for panel in (above, below):
        panel.set_yscale("log")
        panel.set_ylabel("largest score")
        panel.axhline(84, color=theme().ink, linestyle="--", linewidth=1)
    above.text(
        0.01, 84 * 1.1, "spacing 0.5 in bfloat16", transform=above.get_yaxis_transform(),
        fontsize=9, va="bottom", color=theme().ink,
    )  # fmt: skip
    legend_above(above)
    panel_letters((above, below))
    return figure


@themed
def plot_divisor(divisor: Dataset) -> Figure:
    """Draw the training loss of eight heads by what their scores are divided by."""
    figure, axes = subplots(height=3.2)
    names = {"head": r"by $\sqrt{16}$", "stream": r"by $\sqrt{128}$", "width": "by 128"}
    for arm, name in names.items():
        rows = divisor.curve.sel(divisor=arm).transpose("seed", "step").values
        seed_lines(axes, divisor.step.values, rows, concept=CONCEPTS[arm], label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (nats)")
    legend_above(axes)
    return figure


@themed
def plot_weights_of_one(others: Sequence[float] = (0.0, 0.0)) -> Figure:
    """Draw the weight of one key over its score, and the sum of its row, for five functions of scores.

    Args:
        others: scores of the other keys, which stay.
    """
    moving = torch.linspace(-4, 4, 161, dtype=torch.float64)
    fixed = torch.tensor(others, dtype=torch.float64).expand(len(moving), -1)
    scores = torch.cat([moving[:, None], fixed], dim=1)
    weights = {
        "softmax": (scores.softmax(-1), "attention"),
        "plus one": (softmax_plus_one(scores), "residual"),
        "sigmoid": (sigmoid_weights(scores), "ffn"),
        "entmax": (entmax15(scores), "norm"),
        "sparsemax": (sparsemax(scores), "alibi"),
    }
    figure, axes = subplots(2, 1, height=2.6, sharex=True)
    for name, (found, concept) in weights.items():
        for panel, values in zip(axes, (found[:, 0], found.sum(-1)), strict=True):
            seed_lines(panel, moving.numpy(), values.numpy(), concept=concept, label=name)
    axes[0].set_ylabel("weight of the key")
    axes[1].set_ylabel("sum of the row")
    axes[0].set_ylim(-0.03, 1.03)
    axes[1].set_ylim(0, 1.5)
    axes[1].set_xlabel(f"its score, while the others stay at {others[0]:g}")
    legend_above(axes[0], columns=3)
    panel_letters(axes)
    return figure


FORM_CONCEPTS: Mapping[str, str] = {
    "softmax": "attention",
    "softmax with norms": "attention",
    "softmax plus one": "residual",
    "sigmoid": "ffn",
    "entmax": "norm",
    "sparsemax": "alibi",
    "linear": "learned",
}


@themed
def plot_forms(forms: Dataset) -> Figure:
    """Draw the accuracy of every form on both tasks, a dot per seed, at the trained length.

    Hollow diamonds are means for rows with four times as many pairs or symbols.
    """
    figure, axes = subplots(2, 1, height=2.6, sharex=True)
    chance = {"recall": 1 / 4, "count": 1 / 4}
    for panel, task in zip(axes, forms.task.values, strict=True):
        found = forms.accuracy.sel(task=task, length="trained")
        groups = {str(form): found.sel(form=form).values for form in forms.form.values}
        seed_strip(panel, groups, label="", concepts=FORM_CONCEPTS, reference=chance[str(task)])
        longer = forms.accuracy.sel(task=task, length="longer").mean("seed").values
        panel.plot(
            longer, range(len(groups)), "D", mfc="none", mec=theme().ink, markersize=9, zorder=2
        )
        panel.set_title(str(task), loc="center")
        panel.set_xlim(0.2, 1.02)
    axes[-1].set_xlabel("accuracy")
    panel_letters(axes)
    return figure
