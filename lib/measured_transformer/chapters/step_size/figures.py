"""Figures about the size of a step: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from xarray import Dataset

from measured_transformer.figures.plots import panel_letters, seed_lines, seed_strip, subplots
from measured_transformer.figures.solving import NAMES as PLACEMENTS
from measured_transformer.figures.style import COLOURS, look, theme, themed

CONCEPTS: Mapping[str, str] = {
    "pre": "residual",
    "post": "norm",
    "deep": "attention",
    "none": "none",
    "scaled": "ffn",
    "gate": "learned",
}
"""What an arm is drawn as."""
NAMES: Mapping[str, str] = {
    **{arm: PLACEMENTS[arm] for arm in ("pre", "post", "deep")},
    "none": "nobody (no norm)",
    "scaled": "no norm, divided",
    "gate": "no norm, gates",
}
"""What an arm is called."""


def _name(axes: Axes, arm: str, at: tuple[float, float], text: str = "", **how: str) -> None:
    """Write an arm's name beside its line, in its colour."""
    axes.text(*at, text or NAMES[arm], color=COLOURS[CONCEPTS[arm]], fontsize=9, **how)  # type: ignore[arg-type]


@themed
def plot_steps(untrained: Dataset) -> Figure:
    """Draw over the blocks of untrained towers (a) the size of the stream, (b) how far each block turns it.

    Args:
        untrained: the result ``untrained``.
    """
    figure, axes = subplots(1, 2, height=3.3)
    for arm, concept in CONCEPTS.items():
        size = untrained["size"].sel(arm=arm).transpose("seed", "state").values
        turn = untrained.turn.sel(arm=arm).transpose("seed", "block").values
        seed_lines(axes[0], untrained.state.values, size, concept=concept, marker_every=6)
        seed_lines(axes[1], untrained.block.values, turn, concept=concept, marker_every=6)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("size of the stream")
    axes[1].set_ylabel("turned by the block, degrees")
    for panel in axes:
        panel.set_xlabel("block")
        panel.xaxis.set_major_locator(FixedLocator((1, 6, 12, 18, 24)))
    _name(axes[0], "none", (10.5, 1500), "nobody", ha="right")
    _name(axes[0], "pre", (17, 7), ha="center")
    _name(axes[0], "deep", (12, 0.42), "all others", ha="center")
    beside = {"none": 57, "post": 50.5, "pre": 13.5, "scaled": 8, "deep": 2.7, "gate": -2.6}
    short = {"none": "nobody", "scaled": "divided", "gate": "gates"}
    for arm, y in beside.items():
        _name(axes[1], arm, (24.8, y), short.get(arm, NAMES[arm]), va="center")
    axes[1].set_xlim(0, 34)
    axes[1].set_ylim(-6, 76)
    axes[0].set_ylim(0.25, None)
    panel_letters(axes)
    return figure


@themed
def plot_staircase(towers: Dataset, deepest: Dataset) -> Figure:
    """Draw how many answers of pre-norm towers are right after each move, a line for each depth.

    Args:
        towers: the result ``towers``.
        deepest: the result ``deepest``.
    """
    figure, axes = subplots(height=3.2)
    concepts = ("random", "learned", "ffn", "residual")
    ends = []
    found = {int(n): towers.right.sel(arm="pre", depth=n) for n in towers.depth.values}
    found[24] = deepest.right.sel(arm="pre")
    for (depth, values), concept in zip(found.items(), concepts, strict=True):
        right = values.transpose("seed", "move").values
        seed_lines(axes, towers.move.values, right, concept=concept, marker_every=1)
        ends.append((float(right[:, -1].mean()), f"{depth} blocks", COLOURS[concept]))
    for y, (_, text, colour) in zip(apart([end for end, _, _ in ends], 0.07), ends, strict=True):
        axes.text(6.12, y, text, color=colour, fontsize=9, va="center")
    _guess(axes, 1.0)
    axes.set_xlim(0.8, 7.0)
    axes.set_xticks(towers.move.values)
    axes.set_xlabel("moves made")
    axes.set_ylabel("share of right answers")
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


def _guess(axes: Axes, at: float) -> None:
    axes.axhline(1 / 3, color=theme().faint, linestyle="--", linewidth=1.2, zorder=1)
    axes.text(at, 1 / 3 + 0.015, "a guess", fontsize=8, color=theme().ink, va="bottom")


@themed
def plot_towers(towers: Dataset, deepest: Dataset) -> Figure:
    """Draw the share of right fifth answers over depth, a panel for each kind of tower, a dot for each run.

    Args:
        towers: the result ``towers``.
        deepest: the result ``deepest``.
    """
    figure, axes = subplots(2, 3, height=2.2, sharex=True, sharey=True)
    every = [*towers.depth.values.tolist(), 24]
    for panel, (arm, concept) in zip(axes.ravel(), CONCEPTS.items(), strict=True):
        right = towers.right.sel(arm=arm, move=5).transpose("seed", "depth").values
        if arm in deepest.arm.values:
            last = deepest.right.sel(arm=arm, move=5).values
            right = np.concatenate([right, last[:, None]], axis=1)
        depths = np.array(every[: right.shape[1]])
        colour, mark = look(concept)["color"], look(concept)["marker"]
        for values, beside in zip(right, 1.06 ** np.linspace(-1, 1, len(right)), strict=True):
            panel.plot(depths * beside, values, mark, color=colour, markersize=4, alpha=0.6)
        panel.plot(depths, right.mean(0), color=colour, linewidth=2)
        panel.axhline(1 / 3, color=theme().faint, linestyle="--", linewidth=1.2, zorder=1)
        panel.set_title(NAMES[arm], loc="left", color=colour)
        panel.set_xscale("log")
        panel.set_xticks(every, [str(depth) for depth in every])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_ylim(0.2, 1.05)
    for panel in axes[1]:
        panel.set_xlabel("blocks")
    for panel in axes[:, 0]:
        panel.set_ylabel("right after move 5")
    return figure


@themed
def plot_factors(towers: Dataset, factors: Dataset) -> Figure:
    """Draw one row for each initial size of the branches of 12 blocks: the right fifth answers of every run.

    Args:
        towers: the result ``towers``.
        factors: the result ``factors``.
    """
    deepest = towers.right.sel(depth=int(towers.depth.max()), move=5)
    other = factors.right.sel(move=5)
    rows = {
        "pre-norm, twice": (other.sel(factor=2.0).values, "residual"),
        "pre-norm, once": (deepest.sel(arm="pre").values, "residual"),
        "pre-norm, a tenth": (other.sel(factor=0.1).values, "residual"),
        "no norm, once": (deepest.sel(arm="none").values, "none"),
        "no norm, a fifth": (deepest.sel(arm="scaled").values, "ffn"),
    }
    figure, axes = subplots(height=2.9)
    seed_strip(
        axes,
        {name: values for name, (values, _) in rows.items()},
        label="share of right answers after move 5",
        concepts={name: concept for name, (_, concept) in rows.items()},
        reference=1 / 3,
    )
    return figure


@themed
def plot_rates(rates: Dataset) -> Figure:
    """Draw a table of shallow towers by learning rate: the share of runs that follow four moves.

    Args:
        rates: the result ``rates``.
    """
    shares = (rates.right.sel(move=4) >= 0.75).mean("seed").transpose("arm", "rate").values
    figure, axes = subplots(height=3.6)
    axes.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    axes.grid(visible=False)
    for (i, j), share in np.ndenumerate(shares):
        ink = "black" if share > 0.6 else "white"
        axes.text(j, i, f"{share:.0%}", ha="center", va="center", color=ink, fontsize=8.5)
    names = {
        "pre": "pre-norm",
        "post": "post-norm",
        "none": "no norm",
        "pre gate": "pre-norm, gates",
        "gate": "no norm, gates",
    }
    labels = []
    for arm in rates.arm.values.tolist():
        kind, depth = arm.split(", ")
        labels.append(f"{names[kind]}, {depth} blocks")
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xticks(range(rates.rate.size), [f"{1000 * rate:g}" for rate in rates.rate.values])
    axes.set_xlabel("learning rate, thousandths")
    axes.tick_params(length=0)
    return figure
