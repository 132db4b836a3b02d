"""Figures on refining and rewriting: blocks left out, writes that agree, and who makes up for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.viewer.style import look, theme, themed
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.layers_as_steps.measure import (
    GRAMMAR,
    LENSES,
    MEASURES,
    REVERSAL,
    SAMPLES,
    SHELL,
)
from measured_book.rooms.layers_as_steps.reading import against

NAMES = {"sentences": "sentences", "reversal": "reversal", "shell": "shell game"}
"""The tasks of the models of twelve blocks, as the page calls them."""
GUESSES = {
    "sentences": float(np.log(GRAMMAR.vocab)),
    "reversal": float(np.log(REVERSAL.vocab)),
    "shell": SHELL.blind_loss(),
}
"""What it costs, in nats, to know nothing of the sequence."""
_EDITS = ("residual", "attention", "ffn", "norm")
_SUBLAYERS = {"attention": "attention", "feed-forward": "ffn"}


@themed
def plot_two_teams(teams: Mapping[str, Mapping[str, ArrayLike]]) -> Figure:
    """Draw how far from the goal two small teams are, step by step, whole and edited.

    Args:
        teams: name of the team -> what was done to it -> distance before the first member and after each.
    """
    figure, axes = subplots(1, len(teams), height=2.9, layout="constrained")
    for panel, (name, lines) in zip(axes, teams.items(), strict=True):
        for (edit, distance), concept in zip(lines.items(), _EDITS, strict=False):
            walk = np.asarray(distance, dtype=float)
            panel.plot(np.arange(walk.size), walk, **look(concept), label=edit, alpha=0.85)
        panel.set_xlabel(f"members passed ({name})")
        panel.xaxis.set_major_locator(FixedLocator(range(6)))
        panel.set_ylim(-0.6, None)
    axes[0].set_ylabel("distance to the goal")
    axes[-1].legend(loc="center left", fontsize=9)
    panel_letters(axes)
    return figure


@themed
def plot_edits(twelve: Dataset) -> Figure:
    """Draw what it costs to leave out, to repeat and to move each block: tasks, with every seed."""
    figure, axes = subplots(len(NAMES), 1, height=2.2, sharex=True)
    blocks = twelve.block.values.astype(float)
    edits = (
        ("skip", "left out", "residual", 0.0),
        ("swap", "swapped with the next", "attention", 0.5),
        ("twice", "run twice", "ffn", 0.0),
    )
    for panel, (task, name) in zip(axes, NAMES.items(), strict=True):
        for variable, label, concept, shift in edits:
            rows = twelve[variable].sel(task=task).transpose("seed", "block").values
            last = len(blocks) - (variable == "swap")
            where = blocks[:last] + shift
            seed_lines(panel, where, rows[:, :last], concept=concept, label=label)
        panel.set_yscale("symlog", linthresh=0.01, linscale=0.6)
        panel.set_yticks([0, 0.01, 0.1, 1, 10], ["0", "0.01", "0.1", "1", "10"])
        panel.yaxis.set_minor_locator(NullLocator())
        panel.set_ylim(-0.008, 15)
        panel.set_ylabel(f"{name}:\nrise of the loss, nats")
    axes[-1].set_xticks(blocks)
    axes[-1].set_xlabel("block")
    legend_above(axes[0])
    panel_letters(axes)
    return figure


@themed
def plot_agreement(twelve: Dataset) -> Figure:
    """Draw cosines between the writes of two blocks, raw and centred, and the share of pairs below zero."""
    figure, axes = subplots(2, 3, height=2.2, layout="constrained", height_ratios=(1.7, 1))
    size = twelve.sizes["block"]
    image: Any = None
    for panel, (task, name) in zip(axes[0], NAMES.items(), strict=True):
        raw, centred = (
            twelve[which].sel(task=task).mean("seed").transpose("block", "other").values
            for which in ("raw", "centred")
        )
        shown = np.where(np.triu(np.ones((size, size)), 1) > 0, raw, centred)
        np.fill_diagonal(shown, np.nan)
        image = panel.imshow(shown, cmap="RdBu_r", vmin=-0.8, vmax=0.8)
        panel.set_title(name, fontsize=11)
        panel.set_xticks([0, 5, 11], ["1", "6", "12"])
        panel.set_yticks([0, 5, 11], ["1", "6", "12"])
        panel.set_xlabel("block")
        panel.grid(visible=False)
    axes[0, 0].set_ylabel("block")
    figure.colorbar(image, ax=axes[0], label="cosine", shrink=0.8, pad=0.01)
    for panel, task in zip(axes[1], NAMES, strict=True):
        found = {
            which: against(twelve[which].sel(task=task)).values
            for which in ("raw", "centred", "untrained")
        }
        concepts = {"raw": "residual", "centred": "rotary", "untrained": "random"}
        seed_strip(panel, found, label="", concepts=concepts, reference=0.5)
        panel.set_xlim(-0.06, 0.8)
        panel.set_xticks([0, 0.5], ["0", "0.5"])
        if panel is not axes[1, 0]:
            panel.tick_params(axis="y", labelleft=False)
    axes[1, 1].set_xlabel("share of the pairs of blocks whose cosine lies below 0")
    return figure


@themed
def plot_repair(twelve: Dataset) -> Figure:
    """Draw what silenced sublayers contributed directly, what the output loses, and who gave it back."""
    figure, axes = subplots(2, 3, height=2.7, layout="constrained", height_ratios=(1.4, 1))
    bounds = (-0.6, 20.0)
    for panel, (task, name) in zip(axes[0], NAMES.items(), strict=True):
        here = twelve.sel(task=task)
        for kind, (label, concept) in enumerate(_SUBLAYERS.items()):
            style = look(concept) | {"linestyle": "none", "markersize": 4, "mew": 0}
            direct, total = (
                -here[which].isel(sublayer=slice(kind, None, 2)).values.ravel()
                for which in ("direct", "total")
            )
            panel.plot(direct, total, **style, alpha=0.45, label=label)
        panel.plot(bounds, bounds, color=theme().ink, linewidth=1, linestyle="--")
        for set_scale, set_limits in (
            (panel.set_xscale, panel.set_xlim),
            (panel.set_yscale, panel.set_ylim),
        ):
            set_scale("symlog", linthresh=0.1, linscale=0.5)
            set_limits(*bounds)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(FixedLocator([0, 0.1, 1, 10]))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_title(name, fontsize=11)
    axes[0, 1].set_xlabel("lost directly, in logits")
    axes[0, 0].set_ylabel("lost in the output")
    for panel in axes[0, 1:]:
        panel.tick_params(axis="y", labelleft=False)
    words = {"fontsize": 8.5, "color": theme().ink, "transform": axes[0, 0].transAxes}
    axes[0, 0].text(0.97, 0.1, "made up for", ha="right", **words)
    axes[0, 2].text(0.05, 0.9, "others lose too", **(words | {"transform": axes[0, 2].transAxes}))
    handles = [
        Line2D([], [], **(look(concept) | {"linestyle": "none", "label": label}))
        for label, concept in _SUBLAYERS.items()
    ]
    axes[0, 0].legend(handles=handles, loc="upper left", fontsize=8.5)
    for panel, task in zip(axes[1], NAMES, strict=True):
        _shares(panel, twelve.sel(task=task).isel(sublayer=slice(2, None)).sum("sublayer"))
        if panel is not axes[1, 0]:
            panel.tick_params(axis="y", labelleft=False)
    axes[1, 1].set_xlabel("over what is lost directly")
    return figure


def _shares(panel: Axes, summed: Dataset) -> None:
    """Rows of one dot for each seed: what is lost later, given back by the norm, and lost in the end."""
    rows = {
        "lost by later\nsublayers": (summed.later, "ffn"),
        "given back by\nthe final norm": (-summed.norm, "norm"),
        "lost in\nthe output": (summed.total, "residual"),
    }
    groups = {name: (values / summed.direct).values for name, (values, _) in rows.items()}
    concepts = {name: concept for name, (_, concept) in rows.items()}
    seed_strip(panel, groups, label="", concepts=concepts, reference=1.0)
    panel.set_xlim(-0.3, 1.15 * max(1.2, *(float(np.max(each)) for each in groups.values())))


@themed
def plot_suppression(suppressing: Dataset) -> Figure:
    """Draw for every head where it looks for an expected token that has been, and what it writes about it."""
    figure, axes = subplots(height=3.4)
    for task, concept in (("sentences", "residual"), ("raffle", "attention")):
        style = look(concept) | {"linestyle": "none", "markersize": 4.5, "mew": 0}
        aim, effect = (suppressing[f"{task}_{what}"].values.ravel() for what in ("aim", "effect"))
        axes.plot(aim, effect, **style, alpha=0.5, label=f"{task}, each head of each model")
    chosen = suppressing.sel(task="raffle")
    axes.plot(
        chosen.chosen_aim, chosen.chosen_effect, "o", mfc="none", mec=theme().ink, markersize=9,
        label="raffle, the head chosen on other sequences",
    )  # fmt: skip
    axes.axhline(0, color=theme().ink, linewidth=0.8)
    axes.axvline(1, color=theme().ink, linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("weight on the expected token / weight of even attention")
    axes.set_ylabel("what the head adds\nto its logit")
    axes.legend(loc="lower left", fontsize=9)
    return figure


@themed
def plot_read_off(readings: Dataset) -> Figure:
    """Draw the loss that two lenses read off the stream at each depth, a panel for each task, every seed."""
    figure, axes = subplots(1, 3, height=2.7, layout="constrained")
    for panel, (task, name) in zip(axes, NAMES.items(), strict=True):
        for lens, concept in zip(LENSES, ("residual", "norm"), strict=True):
            rows = readings["read"].sel(task=task, lens=lens, sample=SAMPLES[1])
            rows = rows.transpose("seed", "state")
            label = f"{lens} lens"
            seed_lines(panel, rows.state.values, rows.values, concept=concept, label=label)
        panel.axhline(GUESSES[task], color=theme().ink, linestyle="--", linewidth=1)
        panel.set_title(name, fontsize=11)
        panel.set_ylim(0, None)
        panel.set_xticks([0, 4, 8, 12])
        panel.set_xlabel("blocks passed")
    axes[0].set_ylabel("loss read off, nats")
    axes[0].legend(loc="lower left", fontsize=8.5)
    return figure


@themed
def plot_idle(six: Dataset) -> Figure:
    """Draw how long writes are beside the stream, and what probes read at each depth, with every seed."""
    figure, axes = subplots(1, 2, height=3.1, layout="constrained")
    arms = {
        ("copying", "plain"): "residual",
        ("reversal", "plain"): "rotary",
        ("copying", "decay"): "alibi",
        ("reversal", "decay"): "learned",
    }
    for (task, arm), concept in arms.items():
        rows = six.ratio.sel(task=task, arm=arm).transpose("seed", "block")
        label = f"{task}{', decay' if arm == 'decay' else ''}"
        seed_lines(axes[0], rows.block.values, rows.values, concept=concept, label=label)
    axes[0].axhline(0.3, color=theme().ink, linestyle="--", linewidth=1)
    axes[0].set_yscale("log")
    axes[0].yaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3]))
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].set_xlabel("block")
    axes[0].set_ylabel("length of a write / stream")
    axes[0].legend(fontsize=8.5)
    kept = {
        ("token", "plain"): "residual",
        ("position", "plain"): "rotary",
        ("token", "decay"): "alibi",
        ("position", "decay"): "learned",
    }
    for (what, arm), concept in kept.items():
        rows = six.survives.sel(what=what, arm=arm).transpose("seed", "state")
        label = f"{what}{', decay' if arm == 'decay' else ''}"
        seed_lines(axes[1], rows.state.values, rows.values, concept=concept, label=label)
    axes[1].axhline(1 / 8, color=theme().ink, linestyle="--", linewidth=1)
    axes[1].set_ylim(0, 1.03)
    axes[1].set_xlabel("blocks passed (reversal)")
    axes[1].set_ylabel("accuracy of the probe")
    axes[1].legend(loc="center left", fontsize=8.5)
    panel_letters(axes)
    return figure


@themed
def plot_lengths_and_losses(lookups: Dataset, agreement: DataArray, *, bound: float) -> Figure:
    """Draw how long a sublayer's writes are against how much it is missed, and how measures agree with length.

    Args:
        lookups: the result of this name.
        agreement: rank correlation with the length, one for each seed and measure.
        bound: a correlation to mark.
    """
    floor = 1e-3
    figure, (left, right) = subplots(1, 2, height=3.1, layout="constrained")
    for kind, (name, concept) in enumerate(_SUBLAYERS.items()):
        style = look(concept) | {"linestyle": "none", "markersize": 4, "mew": 0}
        length, zero = (
            np.concatenate(
                [lookups[f"{what}_{of}"].values[:, kind::2].ravel() for of in ("four", "six")]
            )
            for what in ("length", "zero")
        )
        left.plot(length, np.maximum(zero, floor), **style, alpha=0.5, label=name)
    left.set_yscale("log")
    left.set_xlabel("share of the written length")
    left.set_ylabel("rise of the loss, nats")
    left.set_ylim(6e-4, 40)
    left.legend(loc="upper right", ncols=2, fontsize=8.5, handletextpad=0.2, columnspacing=0.8)
    names = {
        "attribution": "direct\nattribution",
        "zero": "set to zero",
        "mean": "set to\nits mean",
    }
    shown = {names[way]: agreement.sel(measure=way).values for way in MEASURES}
    concepts = dict(zip(shown, ("residual", "norm", "learned"), strict=True))
    seed_strip(
        right, shown, label="rank correlation with length", concepts=concepts, reference=bound
    )
    right.set_xlim(-0.6, 1.05)
    panel_letters((left, right))
    return figure
