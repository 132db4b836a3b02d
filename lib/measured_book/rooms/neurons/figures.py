"""Figures on neurons as keys and values: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import DataArray, Dataset

from measured_book.figures.diagrams import canvas
from measured_book.figures.plots import (
    mean_and_bar,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.neurons.measure import BLOCKS, LEVELS, LINES, RANKS, RATES, STEPS, WIDE
from measured_book.rooms.neurons.patterns import KNOWN, text_of

Array = Float[np.ndarray, "..."]
ARMS: Mapping[str, tuple[str, str, str]] = {
    "trained": ("trained", "own", "ffn"),
    "trained, random keys": ("trained", "random", "learned"),
    "untrained": ("untrained", "own", "none"),
    "untrained, random keys": ("untrained", "random", "random"),
}
"""Name of an arm -> its model, its keys, and the concept whose colour it has."""
_SHOWN = {" ": "\u2423", "\n": "\u21b5", "$": r"\$"}
"""Signs that would not be seen, or would be read as mathematics."""


@themed
def plot_one_neuron(portraits: Dataset, neuron: str) -> Figure:
    """Draw one neuron: text down its ranks, its key's products by character, and its value's push by character.

    Args:
        portraits: the result ``portraits``.
        neuron: which of the two.
    """
    one = portraits.isel(seed=0).sel(neuron=neuron)
    figure = subplots(height=5.6)[0]
    figure.clear()
    grid = figure.add_gridspec(2, 2, height_ratios=[0.27 * (LINES + 0.45) * len(RANKS), 2.2])
    top = figure.add_subplot(grid[0, :])
    left, right = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
    _text_by_rank(top, one)
    names = [text_of([int(token)]) for token in one.top_token.values]
    spread, rows = one["product"].values, np.arange(len(names))
    left.axvline(0, color=theme().ink, linewidth=1)
    left.hlines(rows, spread[:, 0], spread[:, 2], color=COLOURS["ffn"], linewidth=2, alpha=0.6)
    left.plot(spread[:, 1], rows, "^", color=COLOURS["ffn"], markersize=7)
    left.set_xlabel("key times state, and bias")
    right.axvline(0, color=theme().ink, linewidth=1)
    right.barh(np.arange(one.sizes["pushed"]), one.push.values, color=COLOURS["ffn"], height=0.7)
    right.set_xlabel("a unit adds to the logit")
    right.xaxis.set_major_locator(MaxNLocator(4))
    pushed = [text_of([int(token)]) for token in one.pushed_token.values]
    for axes, signs in ((left, names), (right, pushed)):
        axes.set_yticks(
            range(len(signs)), [_SHOWN.get(sign, sign) for sign in signs], family="DejaVu Sans Mono"
        )
        axes.set_ylim(len(signs) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
    panel_letters((top, left, right))
    return figure


def _text_by_rank(axes: Axes, one: Dataset) -> None:
    """Lines of text down a neuron's ranks, shaded by how much it says; a frame marks the place of the rank."""
    axes.set_xlim(0, 1.28 * WIDE)
    axes.set_ylim(len(RANKS) * (LINES + 0.45) - 0.3, -0.1)
    axes.axis("off")
    loudest = float(one.says.max())
    for row, rank in enumerate(RANKS):
        upper = row * (LINES + 0.45)
        name = f"{rank:.1%} down".replace(".0%", "%") if rank else "strongest"
        axes.text(0, upper + LINES / 2, name, ha="left", va="center", fontsize=10)
        for line in range(LINES):
            here = one.sel(rank=rank, line=line)
            signs = text_of(here.token.values.astype(int).tolist())
            for place, (sign, says) in enumerate(zip(signs, here.says.values, strict=True)):
                at = (0.28 * WIDE + place, upper + line)
                shade = tint("ffn", 0.75 * float(says) / loudest)
                framed = place == int(here["at"])
                axes.add_patch(
                    Rectangle(
                        at, 1, 0.94, facecolor=shade, linewidth=1.4 if framed else 0,
                        edgecolor=theme().ink, zorder=2 if framed else 1,
                    )
                )  # fmt: skip
                axes.text(
                    at[0] + 0.5, at[1] + 0.52, _SHOWN.get(sign, sign), ha="center", va="center",
                    fontsize=9, family="DejaVu Sans Mono", zorder=3,
                )  # fmt: skip


@themed
def plot_conventions(*, d_model: int = 3, d_ff: int = 5, neuron: int = 1) -> Figure:
    """Draw where one neuron's key and value stand, with columns and with rows as vectors.

    Args:
        d_model: width of the stream.
        d_ff: number of neurons.
        neuron: which one is marked.
    """
    figure, panels = subplots(2, 1, height=2.6)
    for axes, columns in zip(panels, (True, False), strict=True):
        canvas(axes, width=15.2, height=6.2)
        if columns:
            x = _matrix(axes, 0.2, (d_model, d_ff), "$W_2$", column=neuron, marks="value")
            x = _sign(axes, x, "ReLU(", 1.75)
            x = _matrix(axes, x, (d_ff, d_model), "$W_1$", row=neuron, marks="key")
            x = _matrix(axes, x, (d_model, 1), "$x$")
            _sign(axes, x, ")", 0.4)
        else:
            x = _sign(axes, 0.2, "ReLU(", 1.75)
            x = _matrix(axes, x, (1, d_model), "$x$")
            x = _matrix(axes, x, (d_model, d_ff), "$W_{in}$", column=neuron, marks="key")
            x = _sign(axes, x, ")", 0.5)
            _matrix(axes, x, (d_ff, d_model), "$W_{out}$", row=neuron, marks="value")
    panel_letters(panels)
    return figure


def _matrix(
    axes: Axes,
    x: float,
    shape: tuple[int, int],
    name: str,
    *,
    row: int | None = None,
    column: int | None = None,
    marks: str = "",
) -> float:
    """Draw a matrix from x on, with a row or column marked, and return where the next thing begins."""
    cell, (rows, columns) = 0.84, shape
    top = 3.15 + 0.5 * cell * rows
    for i in range(rows):
        for j in range(columns):
            strong = i == row or j == column
            place = (x + cell * j, top - cell * (i + 1))
            colour = tint("ffn" if marks else "residual", 0.85 if strong else 0.12)
            ink = theme().ink
            axes.add_patch(
                Rectangle(place, cell, cell, facecolor=colour, edgecolor=ink, linewidth=0.8)
            )
    end = x + cell * columns
    axes.text((x + end) / 2, top - cell * rows - 0.12, name, ha="center", va="top", fontsize=13)
    if row is not None:
        axes.text(end + 0.12, top - cell * (row + 0.5), marks, ha="left", va="center")
    if column is not None:
        axes.text(x + cell * (column + 0.5), top + 0.1, marks, ha="center", va="bottom")
    return end + (1.3 if row is not None else 0.25)


def _sign(axes: Axes, x: float, text: str, width: float) -> float:
    axes.text(x, 3.15, text, ha="left", va="center", fontsize=13)
    return x + width


# Described, and predicted -------------------------------------------------------------------------


def _arm(values: DataArray, name: str) -> DataArray:
    model, keys, _ = ARMS[name]
    return values.sel(model=model, keys=keys)


@themed
def plot_described(language: Dataset) -> Figure:
    """Draw how well patterns describe neurons, and how well longer strings do, for models and for random keys.

    Args:
        language: the result ``language``.
    """
    figure, panels = subplots(2, 1, height=2.35)
    shuffled = language.shuffled.sel(model="trained", keys="own").mean("block")
    for axes, (values, label) in zip(
        panels,
        ((language.f1, "F1 of any pattern"), (language.longer_f1, "F1 of two or three characters")),
        strict=True,
    ):
        groups = {name: _arm(values, name).mean("block").values for name in ARMS}
        concepts = {name: concept for name, (_, _, concept) in ARMS.items()}
        if values.name == "f1":
            groups["another neuron's pattern"] = shuffled.values
            concepts["another neuron's pattern"] = "attention"
        seed_strip(axes, groups, label=label, concepts=concepts)
        axes.set_xlim(0, 0.5)
    panel_letters(panels)
    return figure


@themed
def plot_known(language: Dataset) -> Figure:
    """Draw which share of a neuron's variance one, two and three of the last characters tell, by block.

    Args:
        language: the result ``language``.
    """
    figure, panels = subplots(1, len(BLOCKS), height=3.3, sharey=True)
    names = {
        "untrained": ("untrained", 1.05, (0.94, 0.85)),
        "trained, random keys": ("random keys", 1.03, (0.79, 0.67)),
        "trained": ("trained", 1.35, (0.5, 0.3)),
    }
    for axes, block in zip(panels, BLOCKS, strict=True):
        for name, (words, x, heights) in names.items():
            values = _arm(language.known, name).sel(block=block).values
            concept = ARMS[name][2]
            seed_lines(axes, np.array(KNOWN), values, concept=concept)
            axes.text(x, heights[block], words, color=COLOURS[concept], va="center")
        axes.set_xticks(KNOWN)
        axes.set_xlim(0.9, 3.1)
        axes.set_ylim(0, 1)
        axes.set_xlabel(f"last characters known, block {block + 1}")
    panels[0].set_ylabel("share of variance")
    panel_letters(panels)
    return figure


@themed
def plot_written(language: Dataset) -> Figure:
    """Draw how much of what a clear neuron writes falls on its strongest contexts, and where its pattern holds.

    Args:
        language: the result ``language``.
    """
    figure, axes = subplots(height=3.3)
    one = language.sel(model="trained", keys="own")
    seed_lines(axes, np.array(LEVELS), one.written.values, concept="ffn")
    seed_lines(axes, np.array(LEVELS), one.named.values, concept="attention")
    axes.axvline(0.02, color=theme().ink, linewidth=1, linestyle="--")
    axes.text(0.0195, 0.93, "what a list shows", ha="right", va="center")
    axes.text(0.085, 0.93, "all", color=COLOURS["ffn"], ha="right", va="center")
    axes.text(0.3, 0.31, "where the pattern holds", color=COLOURS["attention"], ha="center")
    axes.set_xscale("log")
    axes.set_xticks(LEVELS, [f"{level:.1%}".replace(".0%", "%") for level in LEVELS])
    axes.minorticks_off()
    axes.set_xlabel("contexts, from a neuron's strongest on")
    axes.set_ylabel("share of what it writes")
    axes.set_ylim(0, 1.02)
    return figure


# Active, writing, missing ---------------------------------------------------------------------------


@themed
def plot_busy(digits: Dataset, language: Dataset) -> Figure:
    """Draw the share of neurons that are active on more than half of the inputs: over steps, and on text.

    Args:
        digits, language: the results of these names.
    """
    figure, (left, right) = subplots(1, 2, height=3.1, gridspec_kw={"width_ratios": (1.5, 1)})
    places = np.arange(len(STEPS))
    for rate, concept, at in zip(
        RATES,
        ("sinusoidal", "ffn", "rotary"),
        ((3.05, 0.55), (3.05, 0.31), (3.05, 0.03)),
        strict=True,
    ):
        seed_lines(left, places, digits.busy.sel(rate=rate).values, concept=concept)
        left.text(*at, f"{rate:g}", color=COLOURS[concept], ha="left", va="center")
    left.set_xticks(places, [str(n) for n in STEPS])
    left.set_xlim(-0.2, 3.75)
    left.set_ylim(-0.02, 0.8)
    left.set_xlabel("steps, digits")
    left.set_ylabel("share of busy neurons")
    for i, (model, concept) in enumerate((("untrained", "none"), ("trained", "ffn"))):
        values = language.busy.sel(model=model, keys="own").mean("block").values
        right.plot(
            i + np.linspace(-0.16, 0.16, len(values)),
            values,
            "o",
            color=COLOURS[concept],
            alpha=0.6,
            mew=0,
        )
        mean, low, high = mean_and_bar(values)
        right.plot([i, i], [low, high], color=theme().ink, linewidth=1.6)
        right.plot(i, mean, "D", color=COLOURS[concept], mec=theme().ink, markersize=8)
    right.set_xticks((0, 1), ("untrained", "trained"))
    right.set_xlim(-0.6, 1.6)
    right.set_ylim(-0.02, 0.8)
    right.set_xlabel("text")
    right.grid(visible=False, axis="x")
    for axes in (left, right):
        axes.axhline(0.25, color=theme().ink, linewidth=1, linestyle="--")
    panel_letters((left, right))
    return figure


@themed
def plot_promised(portraits: Dataset) -> Figure:
    """Draw measured against promised changes of logits, a dot for each neuron and token, by block.

    Args:
        portraits: the result ``portraits``, which has some drawn at random.
    """
    figure, panels = subplots(1, len(BLOCKS), height=3.3)
    here = portraits.isel(seed=0)
    for axes, block in zip(panels, reversed(BLOCKS), strict=True):
        promised, measured = here.dots.sel(block=block).values
        slope = float(here.slope.sel(block=block))
        axes.axline((0, 0), slope=slope, color=theme().ink, linewidth=1, linestyle="--")
        axes.plot(promised, measured, ".", color=COLOURS["ffn"], markersize=4, alpha=0.5, mew=0)
        for limit, values in ((axes.set_xlim, promised), (axes.set_ylim, measured)):
            reach = 1.08 * float(np.abs(values).max())
            limit(-reach, reach)
        name = "last block" if block == BLOCKS[-1] else "first block"
        axes.set_xlabel(f"promised, {name}")
    panels[0].set_ylabel("measured")
    panel_letters(panels)
    return figure


@themed
def plot_pairing(writing: Dataset) -> Figure:
    """Draw how well values fit what follows their keys, and the loss when keys and values are paired anew.

    Args:
        writing: the result ``writing``.
    """
    figure, panels = subplots(2, 1, height=2.2)
    fits = writing.agreement
    groups = {
        "own value": fits.sel(model="trained", value="own").mean("block").values,
        "another neuron's": fits.sel(model="trained", value="another's").mean("block").values,
        "untrained, own value": fits.sel(model="untrained", value="own").mean("block").values,
    }
    concepts = dict(zip(groups, ("ffn", "attention", "none"), strict=True))
    label = "correlation of what a value favours with what follows"
    seed_strip(panels[0], groups, label=label, concepts=concepts, reference=0.0)
    changed = writing.changed.mean("block")
    losses = {
        "as it is": writing.loss.values,
        "all at their means": changed.sel(change="mean").values,
        "values exchanged": changed.sel(change="other values").values,
    }
    concepts = dict(zip(losses, ("ffn", "random", "attention"), strict=True))
    seed_strip(panels[1], losses, label="loss in nats per character", concepts=concepts)
    panel_letters(panels)
    return figure


@themed
def plot_missing(writing: Dataset) -> Figure:
    """Draw what it costs to hold one neuron at its mean: where it is strongest and elsewhere, and by its F1.

    Args:
        writing: the result ``writing``.
    """
    figure, (left, right) = subplots(1, 2, height=3.3, gridspec_kw={"width_ratios": (1, 1.5)})
    for i, where in enumerate(("strongest", "elsewhere")):
        values = 1000 * writing.rise_where.sel(where=where).mean("block").values
        left.plot(
            i + np.linspace(-0.16, 0.16, len(values)),
            values,
            "o",
            color=COLOURS["ffn"],
            alpha=0.6,
            mew=0,
        )
        left.plot(i, values.mean(), "D", color=COLOURS["ffn"], mec=theme().ink, markersize=8)
    left.set_xticks((0, 1), ("strongest", "elsewhere"))
    left.set_xlim(-0.6, 1.6)
    left.set_ylim(0, None)
    left.grid(visible=False, axis="x")
    left.set_xlabel("contexts")
    left.set_ylabel("rise of the loss, thousandths")
    rises = 1000 * writing["rise"].values.ravel()
    right.axhline(0, color=theme().ink, linewidth=1)
    right.plot(
        writing["f1"].values.ravel(),
        rises,
        ".",
        color=COLOURS["ffn"],
        markersize=3,
        alpha=0.35,
        mew=0,
    )
    right.set_xlim(0, 1)
    right.set_ylim(*np.quantile(rises, (0.001, 0.999)))
    right.set_xlabel("F1 of the neuron's pattern")
    right.set_ylabel("rise over all contexts")
    panel_letters((left, right))
    return figure


# Digits -------------------------------------------------------------------------------------------

SHOWN = {
    "one digit": ("residual", "token"),
    "one answer": ("attention", "answer"),
    "one position": ("norm", "position"),
    "digit above five": ("ffn", "above five"),
}
"""Labels that are drawn, each with its colour and a short name."""


@themed
def plot_detectors(digits: Dataset) -> Figure:
    """Draw the share of neurons that detect a label, over steps, a panel for each learning rate.

    Args:
        digits: the result ``digits``.
    """
    figure, panels = subplots(1, len(RATES), height=3.3, sharey=True)
    places = np.arange(len(STEPS))
    for axes, rate in zip(panels, RATES, strict=True):
        for label, (concept, name) in SHOWN.items():
            values = digits.share.sel(rate=rate, label=label).values
            seed_lines(axes, places, values, concept=concept, label=name)
        axes.set_xticks(places, [str(n) for n in STEPS])
        axes.set_ylim(-0.03, 1.0)
        axes.set_xlabel(f"steps, rate {rate:g}")
    panels[0].set_ylabel("share of neurons")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    panel_letters(panels)
    return figure
