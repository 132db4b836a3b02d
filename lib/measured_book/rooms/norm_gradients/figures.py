"""Figures about gradients and where the norm stands: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import Dataset

from measured_book.figures.diagrams import box, canvas, plus, stream, wire
from measured_book.figures.plots import panel_letters, seed_lines, subplots
from measured_book.figures.solving import CONCEPTS, NAMES, draw_runs

Array = Float[np.ndarray, "..."]
PLACEMENTS = ("pre", "post")
BAND = (1 / 5, 1 / 3)
"""Three to five times smaller."""
KINDS: Mapping[str, tuple[str, str]] = {
    "query": ("attention", "query"),
    "key": ("learned", "key"),
    "value": ("rotary", "value"),
    "output": ("alibi", "output"),
    "up": ("ffn", "up"),
    "down": ("residual", "down"),
    "norm": ("norm", "norms"),
}
"""What a type of parameter is drawn as, and called."""
_BY_DEPTH = ("random", "learned", "ffn", "attention", "residual")
_ROOTS = ("1", r"\sqrt{2}", r"\sqrt{3}", "2")


# By hand ------------------------------------------------------------------------------------------


@themed
def plot_tower() -> Figure:
    """Draw three sublayers of each placement, with size and gradient of every state worked out by hand."""
    figure, both = subplots(1, 2, height=5.4)
    for axes, placement in zip(both, PLACEMENTS, strict=True):
        canvas(axes, width=5.7, height=9.6)
        _tower(axes, placement)
    panel_letters(both)
    return figure


def _tower(axes: Axes, placement: str) -> None:
    x, side, bottom, step = 2.9, 4.6, 1.0, 2.3
    top = bottom + 3 * step
    pre = placement == "pre"
    axes.text(x, 9.45, NAMES[placement], ha="center", va="center", fontweight="bold")
    axes.text(0.75, 9.0, "size", ha="center", fontsize=10, color=COLOURS["residual"])
    axes.text(1.95, 9.0, "gradient", ha="center", fontsize=10, color=COLOURS["attention"])
    stream(axes, (x, bottom - 0.5), (x, top + (1.45 if pre else 0.95)))
    for place, size in enumerate(_ROOTS):
        y = bottom + place * step
        shown = size if pre else "1"
        inverse = "1" if shown == "1" else rf"1/{shown}"
        axes.text(0.75, y, f"${shown}$", ha="center", va="center", color=COLOURS["residual"])
        axes.text(1.95, y, f"${inverse}$", ha="center", va="center", color=COLOURS["attention"])
        axes.plot([x - 0.28, x + 0.28], [y, y], color=theme().ink, linewidth=1.4, zorder=5)
        if place == 3:
            continue
        leave, add = y + 0.35, y + (1.75 if pre else 1.25)
        wire(axes, [(x, leave), (side, leave), (side, y + 0.55)], arrow=False)
        if pre:
            box(
                axes,
                (side, y + 0.75),
                "norm",
                label=rf"$\div\,{size}$" if place else r"$\div\,1$",
                width=1.3,
            )
            wire(axes, [(side, y + 1.03), (side, y + 1.12)], arrow=False)
            box(axes, (side, y + 1.5), "ffn", label="branch", width=1.7)
            wire(axes, [(side - 0.85, add), (x + 0.27, add)])
        else:
            box(axes, (side, y + 0.95), "ffn", label="branch", width=1.7)
            wire(axes, [(side - 0.85, add), (x + 0.27, add)])
            box(axes, (x, y + 1.85), "norm", label=r"$\div\sqrt{2}$", width=1.4)
        plus(axes, (x, add))
    if pre:
        box(axes, (x, top + 0.62), "norm", label=r"$\div\,2$", width=1.3)
    for y in np.arange(bottom + 0.35, top, step):
        axes.annotate(
            "",
            xy=(1.95, y),
            xytext=(1.95, y + step - 0.7),
            arrowprops={"arrowstyle": "-|>", "color": COLOURS["attention"], "linewidth": 1.2},
        )
        axes.annotate(
            "",
            xy=(0.75, y + step - 0.7),
            xytext=(0.75, y),
            arrowprops={"arrowstyle": "-|>", "color": COLOURS["residual"], "linewidth": 1.2},
        )
    axes.text(x, 0.15, "embedding", ha="center", va="center", fontsize=10)


# Before training ----------------------------------------------------------------------------------


@themed
def plot_by_depth(depths: Dataset) -> Figure:
    """Draw the stream's gradient over blocks in untrained models of 2 to 32 blocks, one panel per placement.

    Args:
        depths: the result ``depths``.
    """
    figure, both = subplots(1, 2, height=3.6, sharey=True)
    for axes, placement in zip(both, PLACEMENTS, strict=True):
        ends = []
        for depth, concept in zip(depths.depth.values, _BY_DEPTH, strict=True):
            here = depths.gradient.sel(placement=placement, depth=depth)
            there = [int(k) for k in depths.after.values if 0 < k <= depth]
            values = here.sel(after=there).transpose("seed", "after").values
            _seeds_and_middle(axes, there, values, concept, marker=True)
            ends.append((depth, np.exp(np.log(values[:, -1]).mean()), COLOURS[concept]))
        for depth, y, colour in ends:
            below = placement == "pre"
            axes.annotate(
                f"{depth}",
                (depth, y),
                (0, -19 if below else 10),
                textcoords="offset points",
                ha="center",
                color=colour,
                fontweight="bold",
                zorder=7,
                bbox={"facecolor": theme().paper, "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        _ticks(axes.xaxis, (1, 2, 4, 8, 16, 32))
        axes.set_xlim(0.85, 42)
        axes.set_xlabel("after block")
        axes.set_title(f"({'ab'[placement == 'post']}) {NAMES[placement]}", loc="left")
    guide = np.array([2.0, 32.0])
    both[0].plot(guide, 1.35 * guide**-0.5, color=theme().ink, linestyle="--", linewidth=1.2)
    both[0].text(9.0, 0.62, r"falls like $1/\sqrt{\mathrm{block}}$", fontsize=10, ha="left")
    _ticks(both[0].yaxis, (0.1, 0.2, 0.5, 1, 2))
    both[0].set_ylabel("gradient of the stream")
    return figure


@themed
def plot_top(depths: Dataset) -> Figure:
    """Draw over depth the gradient at the top of untrained models: (a) of the stream, (b) of the last matrix.

    Args:
        depths: the result ``depths``.
    """
    figure, both = subplots(1, 2, height=3.1)
    across = depths.depth.values
    for axes, what in zip(both, ("gradient", "matrix"), strict=True):
        for placement in PLACEMENTS:
            here = depths[what].sel(placement=placement)
            values = np.stack([here.sel(depth=d, after=d).values for d in across], axis=1)
            _seeds_and_middle(axes, across, values, CONCEPTS[placement], marker=True)
            end = float(np.exp(np.log(values[:, -1]).mean()))
            axes.annotate(
                NAMES[placement],
                (across[-1], end),
                (2, 12 if placement == "post" else -20),
                textcoords="offset points",
                ha="right",
                color=COLOURS[CONCEPTS[placement]],
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        _ticks(axes.xaxis, tuple(int(d) for d in across))
        _ticks(axes.yaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 5))
        axes.set_xlabel("blocks of the model")
    both[0].set_ylabel("gradient of the last state")
    both[1].set_ylabel("gradient of the last matrix")
    panel_letters(both)
    return figure


@themed
def plot_ends(untrained: Dataset, followed: Dataset) -> Figure:
    """Draw the first block's gradient over the last one's: (a) untrained over depth, (b), (c) in training.

    Args:
        untrained: the result ``untrained``.
        followed: the result ``followed``.
    """
    figure, panels = subplots(1, 3, height=3.3, sharey=True)
    for placement in PLACEMENTS:
        here = untrained.ratio.sel(placement=placement).transpose("seed", "depth").values
        _seeds_and_middle(panels[0], untrained.depth.values, here, CONCEPTS[placement], marker=True)
    panels[0].set_xscale("log")
    _ticks(panels[0].xaxis, tuple(int(d) for d in untrained.depth.values))
    panels[0].set_xlabel("blocks, untrained")
    moments = followed.moment.values
    for axes, depth in zip(panels[1:], (6, 12), strict=True):
        for placement, arm in (("pre", f"xavier {depth}"), ("post", f"post {depth}")):
            here = followed.ratio.sel(arm=arm).transpose("seed", "moment").values
            _seeds_and_middle(axes, np.arange(len(moments)), here, CONCEPTS[placement], marker=True)
        axes.set_xticks(range(len(moments)), [str(m) for m in moments])
        axes.set_xlabel(f"steps, {depth} blocks")
    for axes in panels:
        axes.axhspan(*BAND, color=theme().ink, alpha=0.14, lw=0)
        axes.axhline(1.0, color=theme().ink, linewidth=0.8, linestyle="--")
        axes.set_yscale("log")
    panels[0].text(2, np.sqrt(BAND[0] * BAND[1]), "as claimed", fontsize=9, va="center")
    _ticks(panels[0].yaxis, (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100))
    panels[0].set_ylabel("first block's gradient\nover the last one's")
    _name(panels[0], (24.0, 8.5), "pre", ha="right")
    _name(panels[0], (2.0, 0.5), "post", ha="left")
    panel_letters(panels)
    return figure


@themed
def plot_kinds(untrained: Dataset) -> Figure:
    """Draw the gradient of each type of parameter over twelve untrained blocks, one panel per placement.

    Args:
        untrained: the result ``untrained``.
    """
    figure, both = subplots(1, 2, height=3.8, sharey=True)
    blocks = untrained.block.values
    for axes, placement in zip(both, PLACEMENTS, strict=True):
        ends = []
        for kind, (concept, name) in KINDS.items():
            here = untrained.kinds.sel(placement=placement, kind=kind)
            values = here.transpose("seed", "block").values
            _seeds_and_middle(axes, blocks, values, concept)
            ends.append((float(np.log10(values[:, -1]).mean()), name, COLOURS[concept]))
        heights = apart([y for y, _, _ in ends], 0.32)
        for y, (_, name, colour) in zip(heights, ends, strict=True):
            axes.text(12.4, 10**y, name, color=colour, fontsize=9, va="center")
        axes.set_yscale("log")
        axes.set_xlim(0.5, 16.2)
        axes.set_xticks((1, 4, 8, 12))
        axes.set_xlabel("block")
        axes.set_title(f"({'ab'[placement == 'post']}) {NAMES[placement]}", loc="left")
    both[0].set_ylabel("gradient of the weights")
    return figure


def apart(values: Sequence[float], least: float) -> list[float]:
    """Move values so that each is at least this far from the next, in the same order; for labels."""
    order = np.argsort(values)
    placed = [float(values[i]) for i in order]
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + least)
    shift = (sum(placed) - sum(float(v) for v in values)) / len(placed)
    found = [0.0] * len(placed)
    for i, y in zip(order, placed, strict=True):
        found[i] = y - shift
    return found


@themed
def plot_direction(untrained: Dataset) -> Figure:
    """Draw over twelve untrained blocks what is left of the gradient: (a) its direction, (b) differences.

    Args:
        untrained: the result ``untrained``.
    """
    figure, both = subplots(1, 2, height=3.1, sharey=True)
    for axes, what in zip(both, ("cosine", "own"), strict=True):
        for placement in PLACEMENTS:
            values = untrained[what].sel(placement=placement).transpose("seed", "state").values
            style = CONCEPTS[placement]
            seed_lines(axes, untrained.state.values, values, concept=style, marker_every=2)
        axes.axhline(0.0, color=theme().ink, linewidth=0.8, linestyle="--")
        axes.set_xlabel("blocks passed on the way up")
        axes.set_xticks((0, 3, 6, 9, 12))
    both[0].set_ylabel("cosine with the last state's")
    both[1].set_ylabel("share that differs\nby position")
    both[1].tick_params(labelleft=True)
    _name(both[0], (2.4, 0.86), "pre", ha="center")
    _name(both[0], (9.2, 0.1), "post", ha="center")
    panel_letters(both)
    return figure


# Made equal ---------------------------------------------------------------------------------------

ROWS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "SGD": {
        "pre": ("pre", "pre-norm"),
        "post": ("post", "post-norm"),
        "blocks": ("post", "+ blocks equal"),
        "kinds": ("post", "+ all equal"),
        "deep": ("deep", "DeepNorm"),
    },
    "AdamW": {
        "pre": ("pre", "pre-norm"),
        "post": ("post", "post-norm"),
        "rates": ("post", "+ block rates"),
        "deep": ("deep", "DeepNorm"),
    },
}
"""The rows of the remedies, by optimiser: what an arm is drawn as, and called."""


@themed
def plot_remedies(remedies: Dataset) -> Figure:
    """Draw the steps that each run took, one panel per optimiser; runs with open marks were stopped.

    Args:
        remedies: the result ``remedies``.
    """
    figure, both = subplots(1, 2, height=3.2)
    for axes, (optimiser, rows) in zip(both, ROWS.items(), strict=True):
        for row, (arm, (concept, _)) in enumerate(rows.items()):
            here = remedies.sel(arm=f"{optimiser} {arm}")
            done = here.solved.values.astype(bool)
            draw_runs(axes, float(row), here.steps.values.astype(float), done, CONCEPTS[concept])
        for arm in PLACEMENTS:
            middle = np.exp(np.log(remedies.steps.sel(arm=f"{optimiser} {arm}")).mean())
            axes.axvline(float(middle), color=theme().ink, linestyle=":", linewidth=1.0, zorder=0)
        axes.set_yticks(range(len(rows)), [name for _, name in rows.values()], fontsize=10)
        axes.set_ylim(4.5, -0.5)
        axes.set_xscale("log")
        _ticks(axes.xaxis, (50, 70, 100, 150, 200, 300))
        axes.set_xlabel("steps to solve the task")
        axes.grid(visible=False, axis="y")
    both[0].set_title("(a) gradient descent", loc="left")
    both[1].set_title("(b) AdamW", loc="left")
    return figure


# Small parts --------------------------------------------------------------------------------------


def _seeds_and_middle(
    axes: Axes, x: Any, values: Array, concept: str, *, marker: bool = False
) -> None:
    """Draw every seed faint and the geometric mean strong: seeds differ by factors."""
    style = look(concept)
    if not marker:
        style["marker"] = "None"
    for row in values:
        axes.plot(x, row, color=style["color"], alpha=0.22, linewidth=0.8)
    axes.plot(x, np.exp(np.log(values).mean(axis=0)), **style, markersize=5, zorder=3)


def _name(axes: Axes, at: tuple[float, float], placement: str, **how: str) -> None:
    axes.text(*at, NAMES[placement], color=COLOURS[CONCEPTS[placement]], fontsize=10, **how)  # type: ignore[arg-type]


def _ticks(axis: Any, ticks: Sequence[float | int]) -> None:
    """Plain numbers at these values of a logarithmic axis."""
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
