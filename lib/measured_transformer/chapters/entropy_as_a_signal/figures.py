"""Figures about entropy as a signal: what was drawn, what was seen at the look, how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from measured_transformer.figures.plots import legend_above, seed_strip, subplots
from measured_transformer.figures.style import COLOURS, theme, themed

Array = Float[np.ndarray, "..."]

_LEAST = 1e-3


@themed
def plot_plane_of_runs(
    rates: Array, scales: Array, entropies: Array, failed: Bool[np.ndarray, "run"]
) -> Figure:
    """Draw every run where its learning rate and the scale of its first weights put it.

    Args:
        rates, scales: what was drawn, one a run.
        entropies: at the look: the colour.
        failed: crossed out.
    """
    figure, axes = subplots(height=4.2)
    drawn = axes.scatter(
        rates,
        scales,
        c=entropies,
        vmin=0,
        vmax=1,
        s=70,
        edgecolors=theme().ink,
        linewidths=0.6,
        zorder=3,
    )
    axes.plot(
        rates[failed],
        scales[failed],
        "x",
        color=theme().ink,
        markersize=13,
        mew=1.3,
        zorder=4,
        label="failed",
    )
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.set_yticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
    axes.set_xlabel("learning rate")
    axes.set_ylabel("first weights, times")
    bar = figure.colorbar(drawn, ax=axes)
    bar.set_label("entropy at the look")
    bar.outline.set_visible(False)
    legend_above(axes)
    return figure


@themed
def plot_entropy_and_end(
    entropies: Mapping[str, Array], finals: Mapping[str, Array], limit: float
) -> Figure:
    """Draw the final loss over the entropy at the look, a mark a run.

    Args:
        entropies: kind of run -> entropy at the look.
        finals: the same kinds -> final loss; what lies below a thousandth is drawn there.
        limit: above it a run has failed.
    """
    figure, axes = subplots(height=3.9)
    marks = (("residual", "o"), ("attention", "s"), ("norm", "D"), ("ffn", "^"))
    for (name, across), (concept, mark) in zip(entropies.items(), marks, strict=False):
        axes.plot(
            across,
            np.clip(finals[name], _LEAST, None),
            mark,
            color=COLOURS[concept],
            mec=theme().ink,
            mew=0.5,
            alpha=0.85,
            label=name,
        )
    axes.axhline(limit, color=theme().ink, linestyle="--", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("entropy at the look, of its largest value")
    axes.set_ylabel("final loss, nats")
    legend_above(axes, columns=2)
    return figure


@themed
def plot_areas(found: Mapping[str, Array], *, demanded: float, chance: Sequence[float]) -> Figure:
    """Draw how well each number tells failed runs from others, a dot a group.

    Args:
        found: name of the number -> area under its curve, one a group.
        demanded: where a dashed line stands.
        chance: ends of the shaded stretch, in which means with shuffled labels lie.
    """
    figure, axes = subplots(height=0.5 * len(found) + 0.9)
    axes.axvspan(*chance, color=theme().faint, alpha=0.6, linewidth=0)
    colours = ("attention", "attention", "attention", "norm", "ffn", "residual")
    concepts = dict(zip(found, colours, strict=False))
    seed_strip(axes, found, label="area under the curve", concepts=concepts, reference=demanded)
    axes.set_xlim(-0.02, 1.02)
    return figure
