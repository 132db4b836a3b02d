"""Figures of the chapter on layer norm: plane and circle, the stream block by block, six norms side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed, tint
from xarray import DataArray, Dataset

from measured_book.figures.plots import panel_letters, seed_lines, seed_strip, subplots

Array = Float[np.ndarray, "..."]

_TURN, _TILT = np.radians(14), 0.4  # about (1, 1, 1), and how much of the plane's depth is seen


def _view() -> Array:
    """The page's two axes in the three numbers of a vector; (1, 1, 1) stands upright."""
    upright = np.ones(3) / np.sqrt(3)
    first, second = (
        np.array([2.0, -1.0, -1.0]) / np.sqrt(6),
        np.array([0.0, 1.0, -1.0]) / np.sqrt(2),
    )
    across = np.cos(_TURN) * first + np.sin(_TURN) * second
    depth = -np.sin(_TURN) * first + np.cos(_TURN) * second
    return np.stack([across, np.sqrt(1 - _TILT**2) * upright + _TILT * depth])


def seen_from(points: Array) -> Array:
    """Where points of three numbers lie on the page: (number of points, 3) to (number of points, 2)."""
    return np.atleast_2d(points) @ _view().T


@themed
def plot_plane_and_circle(vector: Sequence[float], gamma: Sequence[float]) -> Figure:
    """Draw three numbers on their way through a norm: (a) onto the plane and the circle, (b) times gamma.

    Args:
        vector: what enters.
        gamma: the norm's weights.
    """
    figure, (left, right) = subplots(1, 2, height=3.4)
    x = np.array(vector, dtype=float)
    centred = x - x.mean()
    normed = centred / centred.std()
    circle = _circle()
    stretched, ellipse = normed * gamma, circle * gamma
    for axes in (left, right):
        axes.set_aspect("equal")
        axes.axis("off")
        _disc(axes, 1.75 * circle)
        for place, unit in enumerate(np.eye(3), start=1):
            _line(axes, [np.zeros(3), 2.6 * unit], color=theme().ink, linewidth=0.8, alpha=0.6)
            _words(axes, 2.6 * unit, f"$x_{place}$", (0, 4), ha="center")
        _line(axes, [np.zeros(3), 1.6 * np.ones(3)], color=theme().ink, linestyle="--")
        _words(axes, 1.6 * np.ones(3), "(1, 1, 1)", (0, 6), ha="center")
        _line(axes, circle, color=COLOURS["norm"], linewidth=2.0)
    _arrow(left, np.zeros(3), x, "residual")
    _arrow(left, x, centred, "norm")
    _arrow(left, np.zeros(3), centred, "residual", faint=True)
    _point(left, normed)
    _words(left, x, _written(x), (-2, 8), ha="center")
    _words(left, centred, _written(centred), (-4, -18), ha="center")
    _line(right, ellipse, color=COLOURS["learned"], linewidth=2.0)
    _arrow(right, normed, stretched, "learned")
    _point(right, normed)
    _point(right, stretched)
    panel_letters((left, right))
    low = np.min([axes.get_ylim()[0] for axes in (left, right)])
    high = np.max([axes.get_ylim()[1] for axes in (left, right)])
    for axes in (left, right):
        axes.set_ylim(low, high)
    return figure


def _circle(count: int = 200) -> Array:
    """Points of length root three in the plane whose entries sum to zero."""
    first = np.array([1.0, -1.0, 0.0]) / np.sqrt(2)
    second = np.array([1.0, 1.0, -2.0]) / np.sqrt(6)
    angle = np.linspace(0, 2 * np.pi, count)[:, None]
    return np.sqrt(3) * (np.cos(angle) * first + np.sin(angle) * second)


def _disc(axes: Axes, edge: Array) -> None:
    across, up = seen_from(edge).T
    axes.fill(across, up, facecolor=tint("norm", 0.12), edgecolor=theme().faint, zorder=0)


def _line(axes: Axes, points: Sequence[Array] | Array, **how: Any) -> None:
    across, up = seen_from(np.asarray(points)).T
    axes.plot(across, up, **{"linewidth": 1.2, "zorder": 2, **how})


def _point(axes: Axes, at: Array) -> None:
    ((across, up),) = seen_from(at)
    axes.plot(across, up, "o", color=theme().ink, markersize=7, zorder=6)


def _words(axes: Axes, at: Array, text: str, by: tuple[int, int], **how: Any) -> None:
    ((across, up),) = seen_from(at)
    axes.annotate(text, (across, up), by, textcoords="offset points", fontsize=11, zorder=7, **how)


def _arrow(axes: Axes, start: Array, end: Array, concept: str, *, faint: bool = False) -> None:
    tail, head = seen_from(np.stack([start, end]))
    axes.annotate(
        "",
        xy=(float(head[0]), float(head[1])),
        xytext=(float(tail[0]), float(tail[1])),
        arrowprops={
            "arrowstyle": "-|>",
            "color": COLOURS[concept],
            "alpha": 0.5 if faint else 1.0,
            "linewidth": 2.4,
            "mutation_scale": 16,
            "shrinkA": 0,
            "shrinkB": 0,
        },
        zorder=4,
    )
    axes.plot(*np.stack([tail, head]).T, alpha=0)  # so that the panel knows of it


def _written(x: Array) -> str:
    return f"({', '.join(f'{value:g}' for value in x)})"


_NORMS = {"LayerNorm": "norm", "RMSNorm": "residual"}
_ARMS = {
    "LayerNorm": "norm",
    "RMSNorm": "residual",
    "Peri-LN": "ffn",
    "QK-norm": "attention",
    "Dynamic Tanh": "learned",
    "no norm": "none",
}


def _over(values: DataArray, axis: str) -> Array:
    """One row for each seed."""
    found: np.ndarray = values.transpose("seed", axis).values
    return found


def _name(axes: Axes, at: tuple[float, float], text: str, concept: str, **how: Any) -> None:
    colour = theme().ink if concept == "ink" else COLOURS[concept]
    axes.annotate(text, at, color=colour, fontsize=10, **how)


def _plain(axes: Axes, ticks: Array, labels: Sequence[str] | None = None) -> None:
    """Ticks at these values of a logarithmic axis, as plain numbers."""
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticklabels(labels or [f"{tick:g}" for tick in ticks])


@themed
def plot_changed(text: Dataset) -> Figure:
    """Draw the loss when the stream in mid-model is (a) shifted and (b) stretched, for both norms.

    Args:
        text: the result ``text``.
    """
    figure, (left, right) = subplots(1, 2, height=3.0, sharey=True)
    for norm, concept in _NORMS.items():
        here = text.sel(norm=norm)
        shifts, stretches = here["shift"].values, here.stretch.values
        seed_lines(left, shifts, _over(here.shifted, "shift"), concept=concept, marker_every=1)
        seed_lines(
            right, stretches, _over(here.stretched, "stretch"), concept=concept, marker_every=1
        )
        at = (4.0, 1.8) if norm == "LayerNorm" else (0.2, 4.2)
        _name(left, at, norm, concept, ha="right" if norm == "LayerNorm" else "left")
    right.set_xscale("log")
    _plain(right, text.stretch.values, ["0.1", "¼", "½", "1", "2", "4", "10"])
    left.set_xlabel("added to every entry\n(root mean squares of the token)")
    right.set_xlabel("every entry\nmultiplied by")
    left.set_ylabel("loss (nats per character)")
    panel_letters((left, right))
    return figure


def _along(axes: Axes, text: Dataset) -> None:
    """The sublayers along the axis."""
    names = [str(name) for name in text.state.values]
    short = ["E", *(f"{name[0].upper()}{name[-1]}" for name in names[1:])]
    axes.set_xticks(range(len(names)), short)


@themed
def plot_stream(text: Dataset) -> Figure:
    """Draw the stream behind each sublayer: (a) its root mean square, (b) the share of its mean.

    Args:
        text: the result ``text``.
    """
    figure, axes = subplots(1, 2, height=3.0)
    at = np.arange(text.sizes["state"])
    for norm, concept in _NORMS.items():
        here = text.sel(norm=norm)
        for panel, values in zip(axes, (here.rms, 100 * here.mean_share), strict=True):
            seed_lines(panel, at, _over(values, "state"), concept=concept, marker_every=1)
    for panel in axes:
        _along(panel, text)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("behind")
    top = float(text.rms.isel(state=-1).mean())
    axes[0].axhline(1, color=theme().ink, linewidth=1.2, linestyle=":")
    _name(axes[0], (8.0, 1.0), "what a sublayer reads", "ink", xytext=(0, -14),
          textcoords="offset points", ha="right")  # fmt: skip
    _name(axes[0], (1.2, top), "LayerNorm", "norm", va="top")
    _name(axes[0], (1.2, 0.88 * top), "RMSNorm", "residual", va="top")
    chance = 100 / 64
    axes[1].axhline(chance, color=theme().ink, linewidth=1.2, linestyle=":")
    _name(axes[1], (8.0, 0.12), "dotted: one direction in 64", "ink", ha="right")
    axes[0].set_ylabel("root mean square")
    axes[1].set_ylabel("share of the mean (%)")
    panel_letters(axes)
    return figure


@themed
def plot_peaks(text: Dataset, lone: Dataset) -> Figure:
    """Draw (a) the largest entry of a token in units of its median, (b) what it costs to make one entry large.

    Args:
        text, lone: the results of these names.
    """
    figure, (left, right) = subplots(1, 2, height=3.2)
    here = text.sel(norm="LayerNorm")
    at = np.arange(text.sizes["state"])
    for values, concept in ((here.peak_elsewhere, "residual"), (here.peak_of_start, "attention")):
        seed_lines(left, at, _over(values, "state"), concept=concept, marker_every=1)
    chance = float(text.peak_by_chance.mean())
    left.axhline(chance, color=theme().ink, linewidth=1.2, linestyle=":")
    left.axhline(1000, color=theme().ink, linewidth=1.2, linestyle="--")
    left.set_yscale("log")
    left.set_ylim(1, 3000)
    left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _name(left, (8.0, 1000.0), "a thousandfold", "ink", xytext=(0, 4),
          textcoords="offset points", ha="right")  # fmt: skip
    _name(left, (8.0, 2 * chance), "largest of all other tokens", "residual", ha="right")
    _name(left, (8.0, 1.4), "start token", "attention", ha="right")
    _along(left, text)
    left.set_xlabel("behind")
    left.set_ylabel("largest / median entry")
    sizes = text.spike.values
    everywhere = here.spiked.sel(where="everywhere") - here.loss.sel(change="nothing")
    seed_lines(right, sizes, _over(everywhere, "spike"), concept="residual", marker_every=1)
    for token, concept in (("one other", "norm"), ("start", "attention")):
        values = _over(lone.cost.sel(token=token), "spike")
        seed_lines(right, sizes, values, concept=concept, marker_every=1)
    right.set_xscale("log")
    _plain(right, sizes, ["1", "10", "100", "1000", "10⁴"])
    end = float(sizes[-1])
    _name(right, (end, 1.7), "in every token", "residual", ha="right")
    _name(right, (end, 0.42), "in one other token", "norm", ha="right")
    _name(right, (end, 0.15), "in the start token", "attention", ha="right")
    right.set_xlabel("one entry, in root mean squares")
    right.set_ylabel("cost (nats per character)")
    panel_letters((left, right))
    return figure


@themed
def plot_variation(text: Dataset, *, margin: float) -> Figure:
    """Draw how much the divisor of each norm varies over tokens, one dot for each seed.

    Args:
        text: the result ``text``.
        margin: marked.
    """
    figure, axes = subplots(height=3.6)
    here = text.variation.sel(norm="LayerNorm")
    rows = {f"before {name}": here.sel(reader=name).values for name in here.reader.values}
    label = "standard deviation of the divisor over its mean"
    seed_strip(axes, rows, label=label, concepts=dict.fromkeys(rows, "norm"), reference=margin)
    axes.set_xlim(left=0)
    return figure


@themed
def plot_arms(arms: Dataset) -> Figure:
    """Draw for each norm the loss beyond the best possible over the learning rate, a panel for each.

    Args:
        arms: the result ``arms``.
    """
    figure, panels = subplots(2, 3, height=2.3, sharex=True, sharey=True)
    rates = arms.rate.values
    beside = _over(arms.excess.sel(arm="LayerNorm"), "rate").mean(0)
    for place, (panel, (arm, concept)) in enumerate(zip(panels.flat, _ARMS.items(), strict=True)):
        if arm != "LayerNorm":
            panel.plot(rates, beside, color=COLOURS["norm"], linewidth=1.2, linestyle=":")
        values = _over(arms.excess.sel(arm=arm), "rate")
        seed_lines(panel, rates, values, concept=concept, marker_every=1)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(f"({'abcdef'[place]}) {arm}", loc="left", fontsize=11)
        panel.yaxis.set_major_locator(FixedLocator([0.1, 0.3, 1.0, 3.0]))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        _plain(panel, rates, ["0.5", "1.5", "4.5", "13", "40", "120"])
    for panel in panels[:, 0]:
        panel.set_ylabel("loss above best")
    panels[1, 1].set_xlabel("learning rate, thousandths")
    return figure
