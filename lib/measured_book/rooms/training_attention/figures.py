"""Figures about how attention learns where to look: results in, drawings out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.training_attention.looking import predicted_entropy, score_variance
from measured_book.rooms.training_attention.measure import (
    INDUCERS,
    KINDS,
    REPEATS,
    WATCHED_RATES,
    failed,
)
from measured_book.rooms.training_attention.reading import areas

_FRESH = {  # kind of head -> how it is drawn, its name, and where that is written
    "small_64": ("residual", "N(0, 0.02), width 64"),
    "small_768": ("attention", "N(0, 0.02), width 768"),
    "torch_64": ("ffn", "PyTorch's module"),
    "xavier_64": ("norm", "Xavier"),
}
_ARMS = {"trained": "residual", "frozen": "ffn", "cut": "attention"}
_SPENT = {
    "needed": ("attention", "needed"),
    "distractors": ("residual", "others"),
    "spare": ("ffn", "first token"),
    "own": ("norm", "itself"),
}
_INDUCERS = {"one layer": "none", "two layers": "attention", "first layer given": "residual"}


def _name(axes: Axes, text: str, x: float, y: float, concept: str, ha: str = "left") -> None:
    """Write a line's name beside it, in its colour."""
    axes.text(x, y, text, color=COLOURS[concept], fontsize=10, ha=ha, va="center")


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
    for bar, move in zip(bars, moves, strict=True):
        if move < 0:
            bar.set_hatch("//")
        axes[1].annotate(
            f"{move:+.2f}",
            (bar.get_x() + bar.get_width() / 2, move),
            xytext=(0, 4 if move > 0 else -4),
            textcoords="offset points",
            ha="center",
            va="bottom" if move > 0 else "top",
            fontsize=10,
        )
    axes[1].axhline(0, color=theme().ink, linewidth=1)
    axes[1].margins(y=0.25)
    axes[1].set_ylabel("move of the score")
    names = [f"value {v:g}\n({v - mixed:+.1f})" for v in values]
    axes[1].set_xticks(places, names)
    axes[1].set_xlabel("token (in brackets: value less the mixture)")
    for each in axes:
        each.grid(visible=False, axis="x")
    panel_letters(axes)
    return figure


@themed
def plot_fresh_entropy(drawn: Dataset, level: float) -> Figure:
    """Draw the normalised entropy of fresh heads over the number of tokens, with what the variance predicts.

    Args:
        drawn: the result.
        level: what counts as nearly uniform, dotted.
    """
    figure, axes = subplots(height=3.8)
    lengths = drawn.tokens.values
    for kind, (concept, text) in _FRESH.items():
        rows = drawn.entropy.sel(kind=kind).transpose("seed", "tokens").values
        predicted = [predicted_entropy(score_variance(*KINDS[kind]), int(n)) for n in lengths]
        axes.plot(lengths, predicted, color=theme().ink, linewidth=1, linestyle="--", zorder=4)
        seed_lines(axes, lengths, rows, concept=concept, label=text)
    axes.axhline(level, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n}" for n in lengths])
    axes.set_xlabel("number of tokens")
    axes.set_ylabel("normalised entropy")
    axes.set_ylim(top=1.01)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_values_first(values_first: Dataset) -> Figure:
    """Draw what values have learned and where scores look over the steps, and where the gradient pulls.

    Args:
        values_first: the result.
    """
    figure, axes = subplots(2, 1, height=2.7, sharex=True)
    steps = values_first.step.values

    def rows(name: str) -> np.ndarray:
        found: np.ndarray = values_first[name].transpose("seed", "step").values
        return found

    seed_lines(axes[0], steps, rows("values"), concept="residual", label="", marker_every=1)
    seed_lines(axes[0], steps, rows("scores"), concept="attention", label="", marker_every=1)
    _name(axes[0], "values: right answers if attention were perfect", 34.0, 0.5, "residual")
    _name(axes[0], "scores: weight on the right pair", 34.0, 0.3, "attention")
    axes[0].set_ylabel("share")
    axes[0].set_ylim(0, 1.05)
    seed_lines(axes[1], steps, rows("pull"), concept="norm", label="", marker_every=1)
    axes[1].axhline(0, color=theme().ink, linewidth=1)
    axes[1].set_ylabel("pull towards\nthe right pair")
    axes[1].set_xlim(-3, 103)
    axes[1].set_xlabel("steps")
    panel_letters(axes)
    return figure


@themed
def plot_three_arms(forbidden: Dataset, floors: Sequence[float]) -> Figure:
    """Draw final losses, a panel a task and a row an arm, each seed; dashed the best possible loss.

    Args:
        forbidden: the result.
        floors: best possible loss of each task.
    """
    tasks = [str(name) for name in forbidden.task.values]
    figure, axes = subplots(len(tasks), 1, height=1.7, sharex=True)
    for each, task, floor in zip(axes, tasks, floors, strict=True):
        arms = {arm: forbidden.loss.sel(task=task, arm=arm).values for arm in _ARMS}
        seed_strip(each, arms, label="", concepts=_ARMS, reference=floor)
    axes[-1].set_xlim(left=-0.05)
    axes[-1].set_xlabel("loss after training (nats)")
    panel_letters(axes)
    for each, task in zip(axes, tasks, strict=True):
        each.set_title(task, fontsize=11, loc="right")
    return figure


@themed
def plot_collapse(collapse: Dataset) -> Figure:
    """Draw how far tokens differ in a stack of untrained attention, and what pulls at the scores there.

    Args:
        collapse: the result.
    """
    figure, axes = subplots(2, 1, height=2.4, sharex=True)
    depths = collapse.depth.values
    concepts = {"attention alone": "attention", "with skips": "residual"}
    for panel, name in zip(axes, ("apart", "pull"), strict=True):
        for stack, concept in concepts.items():
            rows = collapse[name].sel(stack=stack).transpose("seed", "depth").values
            seed_lines(panel, depths, rows, concept=concept, label="", marker_every=1)
            _name(panel, stack, 3.2, 0.16 if stack == "attention alone" else 0.7, concept)
        panel.set_ylim(bottom=-0.04)
    axes[0].set_ylabel("in what tokens\ndiffer (share)")
    axes[1].set_ylabel("pull on scores\n(first layer: one)")
    axes[1].set_xlabel("layers passed")
    panel_letters(axes)
    return figure


@themed
def plot_induction(induction: Dataset) -> Figure:
    """Draw the loss on strings that repeat, by arm, and what the heads of the two layers look at meanwhile.

    Args:
        induction: the result.
    """
    figure, axes = subplots(2, 1, height=3.0, sharex=True)
    steps = induction.step.values
    where = {
        "one layer": (380.0, 2.95),
        "two layers": (262.0, 1.45),
        "first layer given": (10.0, 1.2),
    }
    for arm in INDUCERS:
        concept = _INDUCERS[arm]
        rows = induction.loss.sel(arm=arm).transpose("seed", "step").values
        seed_lines(axes[0], steps, rows, concept=concept, label="")
        text = "first layer\ngiven" if arm == "first layer given" else arm
        _name(axes[0], text, *where[arm], concept)
    axes[0].axhline(REPEATS.bag_loss(), color=theme().ink, linewidth=1, linestyle="--")
    axes[0].text(500, REPEATS.bag_loss() - 0.05, "order unknown", ha="right", va="top", fontsize=10)
    axes[0].set_ylabel("loss (nats)")
    axes[0].set_ylim(bottom=0)
    looked = induction.looked.values
    two = induction.sel(arm="two layers")
    kinds = {
        "before": ("ffn", "layer 1: on the token before", 285.0, 0.86),
        "copied": ("attention", "layer 2: on the token\nto be copied", 330.0, 0.36),
    }
    for name, (concept, text, x, y) in kinds.items():
        rows = two[name].transpose("seed", "looked").values
        seed_lines(axes[1], looked, rows, concept=concept, label="", marker_every=1)
        _name(axes[1], text, x, y, concept)
    axes[1].set_ylim(0, 1)
    axes[1].set_ylabel("weight, two layers")
    axes[1].set_xlabel("steps")
    panel_letters(axes)
    return figure


@themed
def plot_where_it_goes(spending: Dataset) -> Figure:
    """Draw the shares of attention at the questions over the steps of training, a panel a block.

    Args:
        spending: the result.
    """
    figure, axes = subplots(2, 1, height=2.9, sharex=True)
    steps = spending.step.values
    for panel, block in zip(axes, (1, 2), strict=True):
        for kind, (concept, text) in _SPENT.items():
            rows = spending.share.sel(block=block, kind=kind).transpose("seed", "step").values
            label = text if block == 1 else ""
            seed_lines(panel, steps, rows, concept=concept, label=label, marker_every=1)
        panel.set_ylim(0, 1)
        panel.set_ylabel(f"share, block {block}")
    legend_above(axes[0], columns=4)
    axes[-1].set_xlabel("steps")
    panel_letters(axes)
    return figure


@themed
def plot_similarity_by_block(readers: Dataset) -> Figure:
    """Draw how alike one word's vectors are in different sentences, block by block, random pairs subtracted.

    Args:
        readers: the result.
    """
    figure, axes = subplots(height=3.2)
    states = readers.state.values
    for name, concept in (
        ("trained", "attention"),
        ("untrained", "none"),
        ("without attention", "ffn"),
    ):
        rows = readers.similarity.sel(model=name).transpose("seed", "state").values
        seed_lines(axes, states, rows, concept=concept, label=name, marker_every=1)
    axes.set_xticks(states, ["embedding", *(f"block {i}" for i in states[1:])])
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("similarity of a word to itself")
    axes.set_xlabel("state of the stream")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_outcomes(signals: Dataset) -> Figure:
    """Draw every training by its entropy at the look and its learning rate, a panel a size of initial weights.

    Args:
        signals: the result.
    """
    factors = signals.factor.values
    figure, axes = subplots(2, 2, height=2.8, sharex=True, sharey=True)
    lost = failed(signals)
    for panel, factor in zip(axes.flat, factors, strict=True):
        at = signals.sel(factor=factor)
        bad = lost.sel(factor=factor).transpose("seed", "rate").values
        entropy = at.entropy.transpose("seed", "rate").values
        rates = np.broadcast_to(np.array(WATCHED_RATES), entropy.shape)
        panel.plot(
            entropy[~bad],
            rates[~bad],
            "o",
            color=COLOURS["residual"],
            alpha=0.6,
            mew=0,
            markersize=5,
        )
        panel.plot(entropy[bad], rates[bad], "x", color=COLOURS["attention"], markersize=6, mew=1.4)
        start = float(at.first_entropy.mean())
        panel.axvline(start, color=theme().ink, linewidth=1, linestyle=":")
        times = {0.5: "half the usual", 1.0: "usual weights", 2.0: "twice", 4.0: "four times"}
        panel.set_title(times[float(factor)], fontsize=11, loc="right")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_xlim(-0.02, 1.04)
    for panel in axes[:, 0]:
        panel.set_ylabel("learning rate")
    for panel in axes[-1]:
        panel.set_xlabel("normalised entropy, step 200")
    panel_letters(axes.flat)
    return figure


@themed
def plot_areas(signals: Dataset, demanded: float) -> Figure:
    """Draw how well each number tells failed trainings from others, over all initial weights and at the usual.

    Args:
        signals: the result.
        demanded: where a dashed line stands.
    """
    names = {
        "low": "low entropy",
        "first": "low entropy,\nbefore training",
        "unusual": "unusual entropy",
        "gradient": "short gradient",
        "loss": "high loss",
    }
    figure, axes = subplots(2, 1, height=2.7, sharex=True)
    for panel, factor in zip(axes, ("all", "1"), strict=True):
        groups = {text: areas(signals, sign=sign, factor=factor) for sign, text in names.items()}
        marks = ("attention", "attention", "norm", "ffn", "residual")
        concepts = dict(zip(groups, marks, strict=True))
        seed_strip(panel, groups, label="", concepts=concepts, reference=demanded)
        panel.axvline(0.5, color=theme().ink, linewidth=1, linestyle=":")
    axes[0].set_title("all initial weights together", fontsize=11, loc="right")
    axes[1].set_title("usual initial weights", fontsize=11, loc="right")
    axes[1].set_xlim(-0.02, 1.02)
    axes[1].set_xlabel("area under the curve")
    panel_letters(axes)
    return figure
