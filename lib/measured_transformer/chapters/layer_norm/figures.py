"""Figures of what a norm does to a vector: plane and circle, the trap of epsilon, deviations, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from measured_transformer.chapters.layer_norm.measure import (
    NormRun,
    size_by_definition,
    size_outside,
)
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, look, theme, themed, tint

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


@themed
def plot_epsilon_trap(
    widths: Sequence[int],
    ratios: Array,
    scales: Array,
    outputs: Mapping[str, Array],
    *,
    d_model: int,
    eps: float,
) -> Figure:
    """Draw (a) how much shorter the code's output is over the width, (b) sizes of outputs over that of inputs.

    Dots are measured, lines are the closed forms.

    Args:
        widths: of the vectors in (a).
        ratios: length of the code's output over that of the definition's, one for each width.
        scales: deviations of the inputs in (b).
        outputs: 'definition' and 'code' -> root mean square of the output at each scale.
        d_model: width of the vectors in (b).
        eps: in both codes.
    """
    figure, (top, bottom) = subplots(2, 1, height=2.9)
    fine = np.geomspace(widths[0], widths[-1], 200)
    top.plot(fine, np.sqrt((fine - 1) / fine), color=COLOURS["learned"], linewidth=1.6)
    top.plot(widths, ratios, "s", color=COLOURS["learned"], markersize=7)
    top.axhline(1, color=theme().ink, linestyle=":", linewidth=1)
    top.set_xscale("log", base=2)
    top.set_xticks(widths, [str(width) for width in widths])
    top.minorticks_off()
    top.set_xlabel("width of the vector")
    top.set_ylabel("code / definition")
    fine = np.geomspace(scales[0], scales[-1], 300)
    curves = {
        "definition": (size_by_definition(fine, eps=eps), "norm"),
        "code": (size_outside(fine, d_model=d_model, eps=eps), "learned"),
    }
    for name, (curve, concept) in curves.items():
        style = look(concept)
        bottom.plot(fine, curve, color=style["color"], linestyle=style["linestyle"])
        marks = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
        bottom.plot(scales, outputs[name], **marks, label=name)
    bottom.set_xscale("log")
    bottom.set_yscale("log")
    bottom.set_xlabel("deviation of the entries that go in")
    bottom.set_ylabel("root mean square\nthat comes out")
    bottom.legend(loc="lower right")
    panel_letters((top, bottom))
    return figure


@themed
def plot_what_passes(values: Mapping[str, Array], concepts: Mapping[str, str]) -> Figure:
    """Draw singular values in falling order, those below the last tick on the floor.

    Args:
        values: name in the legend -> singular values in falling order.
        concepts: the same names -> key of `COLOURS`.
    """
    figure, axes = subplots(height=3.0)
    floor = 1e-3
    for name, found in values.items():
        style = look(concepts[name]) | {"linestyle": "none"}
        axes.plot(
            np.arange(1, found.size + 1), np.maximum(found, floor), **style, label=name, alpha=0.9
        )
    axes.set_yscale("log")
    axes.set_ylim(floor / 1.6, None)
    ticks = [floor, 1e-2, 1e-1, 1.0]
    axes.set_yticks(ticks, ["zero", "0.01", "0.1", "1"])
    axes.minorticks_off()
    axes.set_xlabel("singular value, from the largest on")
    axes.set_ylabel("gain")
    legend_above(axes)
    return figure


@themed
def plot_constant_or_not(
    variations: Mapping[str, Array], tokens: Array, *, margin: float
) -> Figure:
    """Draw (a) how the divisor of each norm varies over tokens and (b) how one norm's divisors are spread.

    Args:
        variations: norm -> coefficient of variation, one a seed.
        tokens: (seed, token) divisors of one norm; drawn in units of each seed's mean.
        margin: marked in (a).
    """
    figure, (top, bottom) = subplots(2, 1, height=2.7)
    concepts = dict.fromkeys(variations, "norm")
    label = "variation of the divisor over tokens"
    seed_strip(top, variations, label=label, concepts=concepts, reference=margin)
    top.set_xlim(left=0)
    relative = tokens / tokens.mean(axis=1, keepdims=True)
    edges = np.linspace(0, 2, 41)
    densities = np.stack([np.histogram(each, edges, density=True)[0] for each in relative])
    seed_lines(bottom, (edges[1:] + edges[:-1]) / 2, densities, concept="norm", label="")
    bottom.axvline(1, color=theme().ink, linestyle="--", linewidth=1)
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel("divisor of a token, in units of the mean")
    bottom.set_ylabel("density of tokens")
    panel_letters((top, bottom))
    return figure


@themed
def plot_times_over_widths(run: NormRun) -> Figure:
    """Draw the time of RMSNorm in units of LayerNorm's over the width, with intervals over rounds."""
    figure, axes = subplots(height=3.4)
    kinds = (
        ("PyTorch's functions", False, "norm"),
        ("single operations", True, "learned"),
    )
    across = np.array(run.widths, dtype=float)
    for place, (name, written_out, concept) in enumerate(kinds):
        found = np.array([run.ratio(width, written_out=written_out) for width in run.widths])
        style = look(concept)
        errors = np.abs(found[:, 1:] - found[:, :1]).T
        shifted = across * 2 ** (0.08 * (place - 0.5))
        axes.errorbar(shifted, found[:, 0], errors, **style, capsize=3, label=name)
    axes.axhline(1, color=theme().ink, linestyle=":", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(across, [str(width) for width in run.widths])
    axes.set_yticks([0.5, 1, 2, 4, 8], ["½", "1", "2", "4", "8"])
    axes.minorticks_off()
    axes.set_xlabel("width of the vectors")
    axes.set_ylabel("RMSNorm / LayerNorm")
    legend_above(axes)
    return figure


@themed
def plot_quality(excess: Mapping[str, Array], *, label: str) -> Figure:
    """Draw a row a norm: the loss beyond the best possible one, a dot a seed.

    Args:
        excess: name of the norm -> one value a seed; two or three names.
        label: what the values are.

    Raises:
        ValueError: another number of names.
    """
    concepts = ("norm", "learned", "random")
    if not 2 <= len(excess) <= len(concepts):
        raise ValueError(f"expected two or three rows, got {len(excess)}")
    figure, axes = subplots(height=0.9 + 0.5 * len(excess))
    chosen = dict(zip(excess, concepts, strict=False))
    seed_strip(axes, excess, label=label, concepts=chosen)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return figure
