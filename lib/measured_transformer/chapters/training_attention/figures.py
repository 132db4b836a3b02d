"""Figures about how attention learns where to look: measurements in, drawings out.

Arrays have their seeds first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from measured_transformer.chapters.training_attention.measure import Similarity, Spent
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed

Array = Float[np.ndarray, "..."]

_SERIES = ("residual", "attention", "ffn", "norm")
_SPENT: Mapping[str, tuple[str, str]] = {  # what it is called, and its colour
    "needed": ("needed", "attention"),
    "distractors": ("others", "residual"),
    "spare": ("first token", "ffn"),
    "own": ("itself", "norm"),
}


@themed
def plot_evenness_by_length(
    lengths: Sequence[int],
    measured: Mapping[str, Array],
    predicted: Mapping[str, Array],
    level: float,
) -> Figure:
    """Draw how even fresh attention is over the number of tokens, each seed, with what the variance predicts.

    Args:
        lengths: numbers of tokens.
        measured: name of the initialisation -> (seed, length).
        predicted: the same name -> (length,), dashed.
        level: what counts as nearly uniform, dotted.
    """
    figure, axes = subplots(height=3.7)
    for name, concept in zip(measured, _SERIES, strict=False):
        axes.plot(
            lengths, predicted[name], color=theme().ink, linewidth=1, linestyle="--", zorder=4
        )
        seed_lines(axes, np.array(lengths), measured[name], concept=concept, label=name)
    axes.axhline(level, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n}" for n in lengths])
    axes.set_xlabel("number of tokens")
    axes.set_ylabel("evenness of attention")
    axes.set_ylim(top=1.005)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_three_arms(
    losses: Mapping[str, Mapping[str, Array]], floors: Mapping[str, float]
) -> Figure:
    """Draw final losses, a panel a task and a row an arm, each seed; dashed the best possible loss.

    Args:
        losses: name of the task -> name of the arm -> one loss a seed.
        floors: name of the task -> its best possible loss.
    """
    rows = max(len(arms) for arms in losses.values())
    figure, axes = subplots(len(losses), 1, height=0.5 * rows + 0.6, squeeze=False)
    for each, (task, arms) in zip(axes[:, 0], losses.items(), strict=True):
        concepts = dict(zip(arms, _SERIES, strict=False))
        seed_strip(each, arms, label="", concepts=concepts, reference=floors[task])
        each.set_xlim(left=min(0.0, floors[task]) - 0.05)
    axes[-1, 0].set_xlabel("final loss (nats)")
    panel_letters(axes[:, 0])
    for each, task in zip(axes[:, 0], losses, strict=True):
        each.set_title(task, fontsize=11, loc="right")
    return figure


@themed
def plot_where_it_goes(
    steps: Sequence[int], blocks: Mapping[str, Sequence[Sequence[Spent]]]
) -> Figure:
    """Draw the shares of attention over the steps of training, a panel a block.

    Args:
        steps: when it was looked at.
        blocks: name of the block -> for each seed its shares at each of the steps.
    """
    figure, axes = subplots(len(blocks), 1, height=2.9, sharex=True, squeeze=False)
    for place, (each, (name, seeds)) in enumerate(zip(axes[:, 0], blocks.items(), strict=True)):
        _shares(each, steps, seeds, labels=place == 0)
        each.set_ylabel("share of attention")
        each.text(0.99, 0.52, name, transform=each.transAxes, ha="right", va="center")
    legend_above(axes[0, 0], columns=4)
    axes[-1, 0].set_xlabel("steps")
    panel_letters(axes[:, 0])
    return figure


def _shares(
    axes: Axes, steps: Sequence[int], seeds: Sequence[Sequence[Spent]], *, labels: bool
) -> None:
    for kind, (label, concept) in _SPENT.items():
        found = np.array([[getattr(one, kind) for one in seed] for seed in seeds])
        seed_lines(axes, np.array(steps), found, concept=concept, label=label if labels else "")
    axes.set_ylim(0, 1)


@themed
def plot_similarity_by_block(groups: Mapping[str, Sequence[Similarity]]) -> Figure:
    """Draw how alike one word's vectors are in different sentences, block by block, random pairs subtracted.

    Args:
        groups: name -> one `Similarity` a seed.
    """
    figure, axes = subplots(height=3.4)
    for (name, found), concept in zip(groups.items(), _SERIES, strict=False):
        rows = np.array([one.adjusted for one in found])
        seed_lines(axes, np.arange(rows.shape[1]), rows, concept=concept, label=name)
    count = len(next(iter(groups.values()))[0].adjusted)
    axes.set_xticks(range(count), ["embedding", *(f"block {i}" for i in range(1, count))])
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("similarity of a word to itself")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_losses_over_steps(steps: Sequence[int], arms: Mapping[str, Array], floor: float) -> Figure:
    """Draw losses on held-out sequences over the steps, an arm a line, every seed faint.

    Args:
        steps: when it was looked at.
        arms: name -> (seed, step).
        floor: loss of a model that knows the answers left but not whose they are, dashed.
    """
    figure, axes = subplots(height=3.2)
    for (name, found), concept in zip(arms.items(), _SERIES, strict=False):
        seed_lines(axes, np.array(steps), found, concept=concept, label=name)
    axes.axhline(floor, color=theme().ink, linewidth=1, linestyle="--")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("steps")
    axes.set_ylabel("loss (nats)")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_evenness_over_steps(steps: Sequence[int], blocks: Mapping[str, Array]) -> Figure:
    """Draw how even attention is over the steps of training, every head of every seed faint.

    Args:
        steps: when it was looked at.
        blocks: name of the block -> (head of a seed, step).
    """
    figure, axes = subplots(height=3.2)
    for (name, found), concept in zip(blocks.items(), _SERIES, strict=False):
        seed_lines(axes, np.array(steps), found, concept=concept, label=name)
    axes.set_ylim(0, 1)
    axes.set_xlabel("steps")
    axes.set_ylabel("evenness of attention")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_nudges(
    weights: Sequence[float], values: Sequence[float], moves: Sequence[float]
) -> Figure:
    """Draw one query's weights, and by how much a step of gradient descent moves each score.

    Args:
        weights: of the tokens.
        values: what each token's value is along the wanted direction.
        moves: of the scores, for a rate of one.
    """
    figure, axes = subplots(2, 1, height=1.9, sharex=True)
    places = np.arange(len(weights))
    mixed = float(np.dot(weights, values))
    axes[0].bar(places, weights, width=0.5, color=COLOURS["attention"])
    axes[0].set_ylabel("weight")
    colours = [COLOURS["ffn"] if move > 0 else COLOURS["norm"] for move in moves]
    bars = axes[1].bar(places, moves, width=0.5, color=colours)
    for bar in bars:
        if bar.get_height() < 0:
            bar.set_hatch("//")
    axes[1].axhline(0, color=theme().ink, linewidth=1)
    axes[1].set_ylabel("move of score")
    names = [f"value {v:g}\n({v - mixed:+.1f})" for v in values]
    axes[1].set_xticks(places, names)
    for each in axes:
        each.grid(visible=False, axis="x")
    panel_letters(axes)
    return figure
