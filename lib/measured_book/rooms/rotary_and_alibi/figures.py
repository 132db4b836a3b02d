"""Figures about schemes that tell how far apart two tokens are: hand examples and results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from numpy.typing import ArrayLike
from xarray import Dataset

from measured_book.figures.plots import mean_and_bar, subplots

SHOWN = {
    "none": "none",
    "learned": "learned",
    "sinusoidal": "sinusoidal",
    "relative": "T5's bias",
    "alibi": "ALiBi",
    "rotary": "rotary",
    "partial": "a quarter rotary",
    "hybrid": "rotary, then none",
}
"""How a scheme is written where readers see it."""
_CONCEPTS = {
    **{name: name for name in SHOWN},
    "relative": "ffn",
    "partial": "rotary",
    "hybrid": "rotary",
}


@themed
def plot_look_back(scores: ArrayLike, queries: Sequence[int], back: int) -> Figure:
    """Draw the scores, (query, key), that some queries give to the keys, and mark the key so far back."""
    values = np.asarray(scores, dtype=float)
    figure, axes = subplots(height=2.9)
    for query, concept in zip(queries, ("residual", "attention", "ffn"), strict=False):
        style = look(concept)
        axes.plot(values[query], color=style["color"], linestyle=style["linestyle"], linewidth=1.6)
        top = query - back
        axes.plot(top, values[query, top], "o", color=style["color"], markersize=7)
        axes.annotate(
            f"query {query}:\nkey {top}",
            (top, values[query, top]),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=style["color"],
            fontsize=10,
        )
    axes.set_ylim(values.min() - 1, values.max() * 1.28)
    axes.set_xlabel("position of the key")
    axes.set_ylabel("score")
    return figure


@themed
def plot_one_number(buckets: ArrayLike, slopes: ArrayLike, distances: ArrayLike) -> Figure:
    """Draw the bucket of each distance (T5), and each head's penalty by distance (ALiBi)."""
    figure, axes = subplots(1, 2, height=3.4)
    away = np.asarray(distances, dtype=float)
    axes[0].plot(away, buckets, color=COLOURS["ffn"], drawstyle="steps-post")
    axes[0].set_ylabel("bucket")
    axes[0].annotate(
        "a bucket\nfor each",
        (8, 8),
        xytext=(-12, 18),
        textcoords="offset points",
        ha="right",
        fontsize=10,
    )
    axes[0].annotate(
        "one for\nmany",
        (70, 27),
        xytext=(12, -16),
        textcoords="offset points",
        ha="left",
        va="top",
        fontsize=10,
    )
    marked = (0, 3, len(np.ravel(slopes)) - 1)
    for head, slope in enumerate(np.asarray(slopes, dtype=float)):
        axes[1].plot(away, -slope * away, color=COLOURS["alibi"], linewidth=1.3)
        if head in marked:
            at = min(away[-1], 6 / slope)
            axes[1].annotate(
                f"slope\n1/{1 / slope:.0f}" if head == 0 else f"1/{1 / slope:.0f}",
                (at, -slope * at),
                xytext=(-4, -3),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=10,
                color=COLOURS["alibi"],
            )
    axes[1].set_ylim(-8, 0.3)
    axes[1].set_ylabel("added to the score")
    for panel, title in zip(axes, ("(a) T5: learned", "(b) ALiBi: fixed"), strict=True):
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("distance")
        panel.set_title(title, loc="left", fontsize=11)
    return figure


@themed
def plot_turned_vectors(
    places: Sequence[tuple[int, int]], *, rate: float, query_angle: float, key_angle: float
) -> Figure:
    """One dial for each pair of places: a query and a key, turned by their positions, and the angle between."""
    figure, axes = subplots(1, len(places), height=2.5)
    for each, (m, n) in zip(np.ravel(axes), places, strict=True):
        each.set_aspect("equal")
        each.axis("off")
        each.set_xlim(-1.3, 1.3)
        each.set_ylim(-1.6, 1.3)
        each.add_patch(Circle((0, 0), 1.0, fill=False, color=theme().faint, linewidth=1.5))
        ends = []
        for start, place, colour, name in (
            (query_angle, m, COLOURS["rotary"], "q"),
            (key_angle, n, COLOURS["residual"], "k"),
        ):
            angle = start + rate * place
            ends.append(angle)
            tip = np.array([np.cos(angle), np.sin(angle)])
            each.annotate(
                "",
                tip,
                (0, 0),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": colour,
                    "lw": 2.4,
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
            )
            each.text(*(1.17 * tip), name, ha="center", va="center", style="italic")
        arc = np.linspace(ends[1], ends[0], 40)
        each.plot(0.42 * np.cos(arc), 0.42 * np.sin(arc), color=theme().ink, linewidth=1.5)
        each.text(0, -1.45, f"$m={m},\\ n={n}$", ha="center", va="center")
    return figure


@themed
def plot_maps(matrices: Mapping[str, ArrayLike]) -> Figure:
    """Draw matrices over (query, key) in rows of three, the schemes' names as titles."""
    rows = -(-len(matrices) // 3)
    figure, axes = subplots(rows, 3, height=2.35, squeeze=False)
    for each in axes.flat[len(matrices) :]:
        each.axis("off")
    for place, (each, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        each.grid(visible=False)
        each.imshow(np.asarray(matrix, dtype=float), cmap="cividis", interpolation="nearest")
        for spine in each.spines.values():
            spine.set_visible(False)
        each.set_xticks([])
        each.set_yticks([])
        each.set_title(f"({chr(ord('a') + place)}) {SHOWN[name]}", loc="left", fontsize=11)
        if place // 3 == rows - 1:
            each.set_xlabel("key")
        if place % 3 == 0:
            each.set_ylabel("query")
    return figure


_ROUTES = {
    "bfloat16, angles too": ("rotary", "bfloat16, angles too", "above"),
    "bfloat16, angles in float32": ("learned", "bfloat16, angles in float32 or float64", "below"),
    "float32, angles too": ("ffn", "float32, angles too", "right"),
    "float32": ("residual", "float32, angles in float64", "below"),
    "float64": ("none", "float64, angles too", "above"),
}


@themed
def plot_score_drift(rounding: Dataset) -> Figure:
    """Draw the largest change of rotary scores under a common shift by precision, a faint line a draw."""
    figure, axes = subplots(height=4.4)
    shifts = rounding["shift"].values
    for route, (concept, name, where) in _ROUTES.items():
        style = look(concept)
        drawn = np.maximum(rounding.error.sel(route=route).values, 1e-17)
        for row in drawn:
            axes.plot(shifts, row, color=style["color"], alpha=0.25, linewidth=0.9)
        middle = np.exp(np.log(drawn).mean(axis=0))
        axes.plot(shifts, middle, **style, markersize=5)
        at = -1 if where == "right" else 2
        axes.annotate(
            name,
            (shifts[at], middle[at]),
            xytext=(0, {"above": 8, "below": -9, "right": -28}[where]),
            textcoords="offset points",
            ha="right" if where == "right" else "center",
            va="bottom" if where == "above" else "top",
            color=style["color"],
            fontsize=10,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_yticks([1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1])
    axes.set_ylim(1e-17, 60)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("common shift of query and key")
    axes.set_ylabel("largest change of a score")
    return figure


@themed
def plot_turns(turns: Dataset, contexts: Mapping[int, int]) -> Figure:
    """Draw positions a turn by pair for two bases; pairs that complete none in their context are hollow."""
    figure, axes = subplots(height=3.7)
    pairs = turns.pair.values
    for (base, context), concept in zip(contexts.items(), ("residual", "attention"), strict=True):
        period = turns.period.sel(base=base).isel(seed=0).values
        colour, done = COLOURS[concept], period <= context
        axes.axhline(context, color=colour, linestyle="--", linewidth=1)
        for chosen, face in ((done, colour), (~done, "none")):
            axes.plot(pairs[chosen], period[chosen], "o", color=colour, mfc=face, markersize=4.5)
        axes.annotate(
            f"base {base:,}",
            (pairs[50], period[50]) if base > 10_000 else (pairs[34], period[34]),
            xytext=(-6, 4) if base > 10_000 else (4, -6),
            textcoords="offset points",
            ha="right" if base > 10_000 else "left",
            va="bottom" if base > 10_000 else "top",
            color=colour,
        )
        axes.text(
            0, context * (1.15 if base > 10_000 else 0.87), f"context {context:,}",
            color=colour, va="bottom" if base > 10_000 else "top", fontsize=10,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("pair, from the fastest to the slowest")
    axes.set_ylabel("positions per turn")
    return figure


@themed
def plot_decay(turns: Dataset, spread: Dataset) -> Figure:
    """Draw the score of equal vectors by distance, and the spread of the scores of independent ones."""
    figure, axes = subplots(height=3.9)
    distance = turns.distance.values
    names = {10_000: ("residual", (-118, -62)), 500_000: ("attention", (40, 22))}
    for base, (concept, shift) in names.items():
        values = turns.alike.sel(base=base).isel(seed=0).values
        colour = COLOURS[concept]
        axes.plot(distance[1:], values[1:], color=colour, linewidth=1.5)
        at = int(np.searchsorted(distance, 300))
        axes.annotate(
            f"equal vectors,\nbase {base:,}",
            (distance[at], values[at]),
            xytext=shift,
            textcoords="offset points",
            ha="left",
            va="center",
            color=colour,
            fontsize=10,
        )
    places = spread.distance.values
    for row in spread.deviation.values:
        axes.plot(places, row, "o", color=theme().ink, alpha=0.25, markersize=4, mew=0)
    axes.plot(places, spread.deviation.mean("seed").values, color=theme().ink, linewidth=1.2)
    axes.annotate(
        "independent vectors: spread of the scores",
        (places[2], 1),
        xytext=(0, 10),
        textcoords="offset points",
        ha="center",
        fontsize=10,
    )
    axes.axhline(0, color=theme().ink, linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([1.0, 10.0, 100.0, 1000.0, 10000.0]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(-0.3, 1.25)
    axes.set_xlabel("distance")
    axes.set_ylabel("score, over its size at distance 0")
    return figure


@themed
def plot_rules(results: Mapping[str, Dataset], limits: Sequence[int]) -> Figure:
    """Draw for each rule the steps that each scheme takes to learn it; hollow where it does not get there."""
    schemes = list(next(iter(results.values())).scheme.values)
    figure, axes = subplots(1, len(results), height=0.9 + 0.36 * len(schemes), sharey=True)
    panels = zip(np.ravel(axes), results.items(), limits, strict=True)
    for place, (each, (name, result), limit) in enumerate(panels):
        for row, scheme in enumerate(schemes):
            _strip(each, result.steps.sel(scheme=scheme).values, row, _CONCEPTS[scheme], limit)
        each.set_title(f"({chr(ord('a') + place)}) {name}", loc="left", fontsize=11)
        each.set_xlim(0, 1.08 * limit)
        each.xaxis.set_major_locator(FixedLocator([0.0, limit / 2, float(limit)]))
        each.set_xlabel("steps")
        each.grid(visible=False, axis="y")
        each.tick_params(axis="y", length=0)
    first = np.ravel(axes)[0]
    first.set_yticks(range(len(schemes)), [SHOWN[scheme] for scheme in schemes])
    first.set_ylim(len(schemes) - 0.5, -0.5)
    return figure


def _strip(axes: Axes, steps: ArrayLike, row: int, concept: str, limit: int) -> None:
    """A dot per seed in one row, hollow at the limit; the mean with its interval where all get there."""
    values, colour = np.asarray(steps, dtype=float), look(concept)["color"]
    shift = np.linspace(-0.28, 0.28, len(values))
    there = values < limit
    for chosen, face in ((there, colour), (~there, "none")):
        axes.plot(values[chosen], row + shift[chosen], "o", color=colour, mfc=face, markersize=4.2)
    if not there.all():
        return
    mean, low, high = mean_and_bar(values)
    axes.plot([low, high], [row, row], color=theme().ink, linewidth=1.4, zorder=3)
    axes.plot(mean, row, "D", color=colour, mec=theme().ink, markersize=6.5, zorder=4)
