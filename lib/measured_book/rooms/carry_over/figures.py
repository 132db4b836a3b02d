"""Figures of *What carries over*: rows in, drawings out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed

from measured_book.evidence.carries import NOT, OPEN, OVER, THEMES
from measured_book.figures.kit import panels, plain_ticks
from measured_book.measuring.carrying import Asked

_LOOK = {OVER: ("residual", "o"), NOT: ("attention", "s"), OPEN: ("random", "v")}
"""Outcome -> colour and marker."""
_NEAR = 0.1
"""Effects smaller than this stand on a straight scale, larger ones on a logarithmic one."""
_TICKS = (-10, -1, -0.1, 0, 0.1, 1, 10, 100)
_TOLD = {
    "LT-18.5": ("largest entry", "right"),
    "LT-15.4.repeats": ("repeated strings", "left"),
    "IW-3.6b.loss": ("norms frozen", "left"),
    "LT-15.4.plain": ("repeated text", "left"),
    "CS-3.7a.tuned": ("second block's writes", "left"),
    "LT-18.7.untrained": ("narrower cone", "right"),
}
"""Rows that are named in the drawing, and on which side of their marks."""


@themed
def plot_effects(asked: Sequence[Asked]) -> Figure:
    """Draw the real model's effect over the small model's, a mark for each row.

    Args:
        asked: the rows, see `measuring.carrying.asked_rows`. Rows whose rule is not the claim's own are
            hollow: their two effects have different units.
    """
    figure, (axes,) = panels(height=5.0)
    measured = [one for one in asked if one.real is not None]
    for outcome, (concept, marker) in _LOOK.items():
        for hollow in (False, True):
            some = [o for o in measured if o.outcome == outcome and bool(o.row.why) == hollow]
            axes.scatter(
                [one.small.effect for one in some],
                [one.real.effect for one in some if one.real is not None],
                s=26,
                marker=marker,
                facecolor="none" if hollow else COLOURS[concept],
                edgecolor=COLOURS[concept],
                linewidth=1.1,
                alpha=0.85,
                label=f"{outcome} ({sum(o.outcome == outcome for o in measured)})"
                if not hollow
                else None,
            )
    for one in measured:
        if one.row.name in _TOLD and one.real is not None:
            text, side = _TOLD[one.row.name]
            axes.annotate(
                text,
                (one.small.effect, one.real.effect),
                textcoords="offset points",
                xytext=(6 if side == "left" else -6, 5),
                ha=side,
                fontsize=8.5,
            )
    for set_scale in (axes.set_xscale, axes.set_yscale):
        set_scale("symlog", linthresh=_NEAR)
    ends = [
        min(axes.get_xlim()[0], axes.get_ylim()[0]),
        max(axes.get_xlim()[1], axes.get_ylim()[1]),
    ]
    line = np.array([-1e3, -1.0, -_NEAR, 0, _NEAR, 1.0, 1e3])
    axes.plot(line, line, color=theme().faint, linewidth=0.9, zorder=0)
    axes.axhline(0, color=theme().faint, linewidth=0.5, zorder=0)
    axes.axvline(0, color=theme().faint, linewidth=0.5, zorder=0)
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, _TICKS)
    axes.set_xlabel("effect in the small model (each row's own unit)")
    axes.set_ylabel("effect in SmolLM2-135M")
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


@themed
def plot_themes(asked: Sequence[Asked]) -> Figure:
    """Draw how many findings of each theme carry over, do not, and are undecided.

    Args:
        asked: the rows.
    """
    figure, (axes,) = panels(height=3.6)
    names = [name for name in THEMES if any(one.row.theme == name for one in asked)]
    for place, name in enumerate(reversed(names)):
        counts = Counter(one.outcome for one in asked if one.row.theme == name)
        start = 0
        for outcome, (concept, _) in _LOOK.items():
            if not counts[outcome]:
                continue
            axes.barh(place, counts[outcome], 0.64, start, color=COLOURS[concept], ec=theme().paper)
            axes.text(
                start + counts[outcome] / 2, place, str(counts[outcome]), ha="center", va="center",
                color="white", fontsize=9,
            )  # fmt: skip
            start += counts[outcome]
    axes.set_yticks(range(len(names)), [THEMES[name] for name in reversed(names)])
    for outcome, (concept, _) in _LOOK.items():
        if any(one.outcome == outcome for one in asked):
            axes.barh(0, 0, color=COLOURS[concept], label=outcome)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("findings")
    return figure
