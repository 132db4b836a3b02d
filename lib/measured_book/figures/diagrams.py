"""Diagrams of the architecture in one visual language.

The residual stream is a thick blue line with an arrow; a sublayer is a rounded box (attention orange,
feed-forward green), a norm a narrow pink one; an addition is a circle with a plus on the stream; thin lines
carry values from one to the other. Diagrams run upwards, from the input to the output. Coordinates are those
of the axes, made by `canvas`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from measured_transformer._moved import former_names
from measured_transformer.viewer.style import COLOURS, theme, themed, tint

from measured_book.figures.plots import subplots

Point = tuple[float, float]

_NAMES = {"attention": "attention", "ffn": "feed-forward", "norm": "norm"}


def canvas(axes: Axes, *, width: float, height: float) -> None:
    """Make axes a drawing board of this size in equal units, without ticks and frames."""
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_aspect("equal")
    axes.axis("off")


def stream(axes: Axes, start: Point, end: Point, *, arrow: bool = True) -> None:
    """Draw a piece of the residual stream from `start` to `end`."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>" if arrow else "-",
            mutation_scale=22,
            linewidth=5,
            color=COLOURS["residual"],
            shrinkA=0,
            shrinkB=0,
            zorder=2,
            capstyle="butt",
        )
    )


def wire(axes: Axes, points: Sequence[Point], *, arrow: bool = True) -> None:
    """Draw a thin line through the points, with an arrow at its end.

    Raises:
        ValueError: fewer than two points.
    """
    if len(points) < 2:
        raise ValueError(f"expected at least two points for a wire, got {len(points)}")
    across, up = zip(*points, strict=True)
    axes.plot(across, up, color=theme().ink, linewidth=1.4, solid_joinstyle="round", zorder=1)
    if arrow:
        axes.add_patch(
            FancyArrowPatch(
                points[-2],
                points[-1],
                arrowstyle="-|>",
                mutation_scale=12,
                linewidth=1.4,
                color=theme().ink,
                shrinkA=0,
                shrinkB=0,
                zorder=1,
            )
        )


def box(
    axes: Axes,
    centre: Point,
    concept: str,
    *,
    label: str | None = None,
    width: float = 2.3,
) -> None:
    """Draw a sublayer or a norm: the concept's colour as frame and tint, its name inside.

    Raises:
        ValueError: a concept that is not a box.
    """
    if concept not in _NAMES:
        raise ValueError(f"expected one of {', '.join(_NAMES)}, got {concept!r}")
    height = 0.56 if concept == "norm" else 0.82
    axes.add_patch(
        FancyBboxPatch(
            (centre[0] - width / 2, centre[1] - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.18",
            facecolor=tint(concept),
            edgecolor=COLOURS[concept],
            linewidth=2.0,
            zorder=3,
        )
    )
    text = _NAMES[concept] if label is None else label
    axes.text(*centre, text, ha="center", va="center", fontsize=12, zorder=4)


def plus(axes: Axes, centre: Point) -> None:
    """Draw the addition of a write to the stream."""
    axes.add_patch(
        Circle(
            centre,
            0.27,
            facecolor=theme().paper,
            edgecolor=COLOURS["residual"],
            linewidth=2.4,
            zorder=4,
        )
    )
    axes.text(
        *centre, "+", ha="center", va="center_baseline", fontsize=16, fontweight="bold", zorder=5
    )


def block(
    axes: Axes,
    x: float,
    *,
    placement: str,
    bottom: float = 0.6,
    step: float = 3.7,
) -> float:
    """Draw one block whose stream runs upwards at `x`, and return where its stream ends.

    Pre-norm: norm and sublayer both lie beside the stream. Post-norm: the norm lies on it.

    Raises:
        ValueError: another placement.
    """
    if placement not in ("pre", "post"):
        raise ValueError(f"expected placement 'pre' or 'post', got {placement!r}")
    side = x + 2.2
    for number, concept in enumerate(("attention", "ffn")):
        low = bottom + number * step
        leave, add = low + 0.25, low + 2.55
        if placement == "pre":
            wire(axes, [(x, leave), (side, leave), (side, leave + 0.42)])
            box(axes, (side, low + 0.95), "norm")
            wire(axes, [(side, low + 1.23), (side, low + 1.44)], arrow=False)
            box(axes, (side, low + 1.85), concept)
            wire(axes, [(side, low + 2.26), (side, add), (x + 0.27, add)])
            stream(axes, (x, low - 0.05), (x, low + step + 0.45 * number), arrow=number == 1)
        else:
            wire(axes, [(x, leave), (side, leave), (side, low + 0.99)])
            box(axes, (side, low + 1.4), concept)
            wire(axes, [(side, low + 1.81), (side, add), (x + 0.27, add)])
            stream(axes, (x, low - 0.05), (x, low + step + 0.45 * number), arrow=number == 1)
            box(axes, (x, low + 3.2), "norm", width=1.3)
        plus(axes, (x, add))
    return bottom + 2 * step + 0.45


@themed
def plot_block_placements() -> Figure:
    """Draw a pre-norm and a post-norm block side by side."""
    figure, both = subplots(1, 2, height=5.6)
    for axes, placement in zip(both, ("pre", "post"), strict=True):
        canvas(axes, width=5.2, height=9.9)
        top = block(axes, 1.3, placement=placement, bottom=0.9)
        axes.text(1.3, 0.45, r"$x^{(\ell)}$", ha="center", va="center", fontsize=14)
        axes.text(1.3, top + 0.4, r"$x^{(\ell+1)}$", ha="center", va="center", fontsize=14)
        axes.text(
            4.9,
            top + 0.4,
            f"{placement}-norm",
            ha="right",
            va="center",
            fontsize=13,
            fontweight="bold",
        )
    return figure


if not TYPE_CHECKING:  # it would take any name for one of these
    __getattr__ = former_names(__name__)
