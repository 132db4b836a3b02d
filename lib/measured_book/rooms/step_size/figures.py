"""Figures about the size of a step: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from xarray import DataArray, Dataset

from measured_book.evidence.functions import best_rate
from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots
from measured_book.figures.solving import NAMES as PLACEMENTS

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
    "none": "nothing (no norm)",
    "scaled": "no norm, divided",
    "gate": "no norm, gates",
}
"""What an arm is called."""
SIX = ("none", "gate", "pre", "pre gate")


def _reached(rates: Dataset, arm: str) -> DataArray:
    """Right answers of a shallow tower at the learning rate whose loss is lowest for the other seeds."""
    here = rates.sel(arm=arm)
    return DataArray(best_rate(here.right, here.loss))


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
    _name(axes[0], "none", (10.5, 1500.0), "nothing", ha="right")
    _name(axes[0], "pre", (17.0, 7.0), ha="center")
    _name(axes[0], "deep", (12.0, 0.42), "all others", ha="center")
    beside = {"none": 57, "post": 50.5, "pre": 13.5, "scaled": 8, "deep": 2.7, "gate": -2.6}
    short = {"none": "nothing", "scaled": "divided", "gate": "gates"}
    for arm, y in beside.items():
        _name(axes[1], arm, (24.8, float(y)), short.get(arm, NAMES[arm]), va="center")
    axes[1].set_xlim(0, 34)
    axes[1].set_ylim(-6, 76)
    axes[0].set_ylim(0.25, None)
    panel_letters(axes)
    return figure


@themed
def plot_staircase(rates: Dataset, towers: Dataset, deepest: Dataset) -> Figure:
    """Draw how many answers of pre-norm towers are right after each move, a line for each depth.

    Args:
        rates: the result ``rates``, for 2 and 6 blocks.
        towers: the result ``towers``, for 12.
        deepest: the result ``deepest``, for 24.
    """
    figure, axes = subplots(height=3.2)
    found = {
        2: _reached(rates, "pre, 2"),
        6: _reached(rates, "pre, 6"),
        12: towers.right.sel(arm="pre"),
        24: deepest.right.sel(arm="pre"),
    }
    concepts = ("random", "learned", "ffn", "residual")
    ends = []
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
def plot_towers(rates: Dataset, towers: Dataset, deepest: Dataset) -> Figure:
    """Draw the right fifth answers of (a) every run of twelve blocks and (b) three kinds of towers over depth.

    Args:
        rates: the result ``rates``, for 2 and 6 blocks.
        towers: the result ``towers``, for 12.
        deepest: the result ``deepest``, for 24.
    """
    figure, axes = subplots(1, 2, height=3.0, width_ratios=(1.0, 1.0))
    order = ("pre", "scaled", "gate", "post", "none")
    for row, arm in enumerate(order):
        values = towers.right.sel(arm=arm, move=5).values
        colour, mark = look(CONCEPTS[arm])["color"], look(CONCEPTS[arm])["marker"]
        beside = row + np.linspace(-0.22, 0.22, len(values))
        axes[0].plot(values, beside, mark, color=colour, markersize=4.5, alpha=0.7)
        axes[0].plot([values.mean()] * 2, [row - 0.34, row + 0.34], color=theme().ink, linewidth=2)
    axes[0].set_yticks(range(len(order)), [NAMES[arm] for arm in order])
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    axes[0].set_xlim(0.2, 1.02)
    axes[0].axvline(1 / 3, color=theme().faint, linestyle="--", linewidth=1.2, zorder=1)
    axes[0].set_xlabel("right after move 5")
    axes[0].grid(visible=False, axis="y")
    _over_depth(axes[1], rates, towers, deepest)
    panel_letters(axes)
    return figure


def _over_depth(axes: Axes, rates: Dataset, towers: Dataset, deepest: Dataset) -> None:
    """One line through the means of each kind of tower, every run a dot."""
    for arm in ("pre", "post", "none"):
        found = {n: _reached(rates, f"{arm}, {n}").sel(move=5).values for n in (2, 6)}
        found[12] = towers.right.sel(arm=arm, move=5).values
        if arm in deepest.arm.values:
            found[24] = deepest.right.sel(arm=arm, move=5).values
        colour, mark = look(CONCEPTS[arm])["color"], look(CONCEPTS[arm])["marker"]
        for depth, values in found.items():
            beside = depth * 1.05 ** np.linspace(-1, 1, len(values))
            axes.plot(beside, values, mark, color=colour, markersize=4, alpha=0.6)
        axes.plot([*found], [values.mean() for values in found.values()], color=colour, linewidth=2)
    _name(axes, "pre", (27.5, 0.89), va="center")
    _name(axes, "post", (21.0, 0.5))
    _name(axes, "none", (2.0, 0.4), "nothing")
    axes.axhline(1 / 3, color=theme().faint, linestyle="--", linewidth=1.2, zorder=1)
    axes.set_xscale("log")
    axes.set_xticks((2, 6, 12, 24), ["2", "6", "12", "24"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(1.7, 62)
    axes.set_ylim(0.2, 1.02)
    axes.set_xlabel("blocks")
    axes.set_ylabel("right after move 5")


@themed
def plot_factors(rates: Dataset, towers: Dataset) -> Figure:
    """Draw the right fifth answers of every run, with branches of usual size and with ones that begin smaller.

    Args:
        rates: the result ``rates``, for 6 blocks.
        towers: the result ``towers``, for 12.
    """
    six = {arm: _reached(rates, f"{arm}, 6").sel(move=5).values for arm in SIX}
    twelve = {arm: towers.right.sel(arm=arm, move=5).values for arm in ("none", "scaled")}
    rows = {
        "no norm, 12 blocks, plain": (twelve["none"], "none"),
        "no norm, 12 blocks, divided": (twelve["scaled"], "ffn"),
        "no norm, 6 blocks, plain": (six["none"], "none"),
        "no norm, 6 blocks, gates": (six["gate"], "learned"),
        "pre-norm, 6 blocks, plain": (six["pre"], "residual"),
        "pre-norm, 6 blocks, gates": (six["pre gate"], "learned"),
    }
    figure, axes = subplots(height=3.2)
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
