"""Figures that compare schemes of positions: from measured values to drawings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, themed
from numpy.typing import ArrayLike

from measured_book.figures.plots import (
    seed_strip,
    subplots,
)

_SHOWN = {"alibi": "ALiBi"}
PRECISION_STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"))
"""Marker and line of each precision, in order."""
PRECISION_COLOURS = (COLOURS["none"], COLOURS["learned"], COLOURS["rotary"], COLOURS["residual"])
"""Colour of each precision, in order."""


def shown_name(name: str) -> str:
    """How a scheme is written where readers see it."""
    return _SHOWN.get(name, name)


def _relabelled(
    groups: Mapping[str, ArrayLike], concepts: Mapping[str, str] | None
) -> tuple[dict[str, ArrayLike], dict[str, str]]:
    """The groups under the names that readers see, and the concept of each."""
    shown = {shown_name(name): values for name, values in groups.items()}
    return shown, {shown_name(name): (concepts or {}).get(name, name) for name in groups}


@themed
def plot_position_maps(matrices: Mapping[str, ArrayLike]) -> Figure:
    """Matrices over (position, position), one panel below the other in rows of two; names as titles."""
    count = len(matrices)
    rows = -(-count // 2)
    figure, axes = subplots(rows, 2, height=2.9, squeeze=False)
    for each in axes.flat[count:]:
        each.axis("off")
    for place, (each, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        cells = np.asarray(matrix, dtype=float)
        each.grid(visible=False)
        each.imshow(cells, cmap="cividis", interpolation="nearest")
        for spine in each.spines.values():
            spine.set_visible(False)
        each.set_title(f"({chr(ord('a') + place)}) {shown_name(name)}", loc="left", fontsize=11)
        each.set_xlabel("position $j$")
        if place % 2 == 0:
            each.set_ylabel("position $i$")
    return figure


@themed
def plot_strip(
    groups: Mapping[str, ArrayLike],
    *,
    label: str,
    concepts: Mapping[str, str] | None = None,
    reference: float | None = None,
) -> Figure:
    """One row a group, a dot for every seed, with mean and interval; a dashed line at the reference."""
    figure, axes = subplots(height=0.8 + 0.42 * len(groups))
    shown, hues = _relabelled(groups, concepts)
    seed_strip(axes, shown, label=label, concepts=hues, reference=reference)
    return figure


@themed
def plot_strips(
    panels: Mapping[str, Mapping[str, ArrayLike]],
    *,
    label: str,
    concepts: Mapping[str, str] | None = None,
    reference: float | None = None,
) -> Figure:
    """Strips below one another on one common axis; the panels' names as titles."""
    rows = sum(len(groups) for groups in panels.values())
    figure, axes = subplots(
        len(panels),
        1,
        height=(0.5 * len(panels) + 0.36 * rows + 0.4) / len(panels),
        sharex=True,
        squeeze=False,
    )
    for place, (each, (name, groups)) in enumerate(zip(axes.flat, panels.items(), strict=True)):
        shown, hues = _relabelled(groups, concepts)
        seed_strip(each, shown, label=label, concepts=hues, reference=reference)
        each.set_title(f"({chr(ord('a') + place)}) {name}", loc="left", fontsize=11)
        if place < len(panels) - 1:
            each.set_xlabel("")
    return figure
