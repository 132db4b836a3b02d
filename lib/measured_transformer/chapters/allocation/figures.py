"""Figures about attention as a budget: arithmetic and measurements in, drawings out.

Arrays have their seeds first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from measured_transformer.chapters.allocation.measure import led_weights, longest, mass, needed_lead
from measured_transformer.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.figures.style import COLOURS, theme, themed, tint

Array = Float[np.ndarray, "..."]

_SERIES = ("residual", "attention", "ffn", "norm")


@themed
def plot_purses(rows: Sequence[tuple[int, int, float]]) -> Figure:
    """Draw softmax weights as a bar of length one a row, cut into the needed tokens' shares and the rest.

    Args:
        rows: number of tokens, how many of them are needed, and their lead.
    """
    figure, axes = subplots(height=0.62 * len(rows) + 0.7)
    for place, (n, m, lead) in enumerate(rows):
        weights = led_weights(lead, n, m)
        starts = np.concatenate([[0.0], weights.cumsum()])
        axes.barh(
            place, weights[:m], left=starts[:m], height=0.62, color=tint("attention", 0.45),
            edgecolor=COLOURS["attention"], linewidth=1.2,
        )  # fmt: skip
        axes.barh(
            place,
            1 - starts[m],
            left=starts[m],
            height=0.62,
            color=theme().faint,
            edgecolor=theme().faint,
        )
        if weights[0] > 0.07:
            for share, start in zip(weights[:m], starts, strict=False):
                axes.text(
                    start + share / 2, place, f"{share:.2f}", ha="center", va="center", fontsize=11
                )
        if 1 - starts[m] > 0.09:
            middle = (1 + starts[m]) / 2
            axes.text(
                middle, place, f"others {1 - starts[m]:.2f}", ha="center", va="center", fontsize=10
            )
    names = [f"{m} of {n}, lead {lead:g}" for n, m, lead in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("attention weight")
    return figure


@themed
def plot_leads_and_masses(
    lengths: Sequence[int], counts: Sequence[int], leads: Sequence[float]
) -> Figure:
    """Draw the lead that a mass of 0.99 needs, and the mass that fixed leads buy, over the length.

    Args:
        lengths: numbers of tokens.
        counts: how many tokens are needed, a line each, in the first panel.
        leads: of a single needed token, a line each, in the second panel.
    """
    figure, (above, below) = subplots(2, 1, height=2.9, sharex=True)
    for m, concept in zip(counts, _SERIES, strict=False):
        fitting = [n for n in lengths if n > m]
        found = [needed_lead(0.99, n, m) for n in fitting]
        seed_lines(above, np.array(fitting), np.array(found), concept=concept, label=f"{m} needed")
    for lead, concept in zip(leads, _SERIES, strict=False):
        found = [mass(lead, n) for n in lengths]
        seed_lines(
            below, np.array(lengths), np.array(found), concept=concept, label=f"lead {lead:g}"
        )
        if lengths[0] < longest(0.5, lead) < lengths[-1]:
            below.plot(
                longest(0.5, lead), 0.5, "o", mfc="none", mec=theme().ink, markersize=12, mew=1.6
            )
    above.set_ylabel("lead for a mass of 0.99")
    below.set_ylabel("mass of one token")
    below.set_ylim(0, 1.03)
    below.set_xlabel("number of tokens")
    below.set_xscale("log", base=2)
    below.set_xticks(lengths[::2], [f"{n}" for n in lengths[::2]])
    for each in (above, below):
        legend_above(each, columns=4)
    panel_letters((above, below))
    return figure


@themed
def plot_readings(
    lengths: Sequence[int],
    measured: Mapping[int, Array],
    predicted: Mapping[int, Array],
    trained_at: int,
) -> Figure:
    """Draw what a reader explains at lengths that it was not trained at, with what its lead predicts.

    Args:
        lengths: numbers of tokens.
        measured: number of needed tokens -> R2, (seed, length).
        predicted: number of needed tokens -> R2, (length,).
        trained_at: the length of training, marked by a line.
    """
    figure, axes = subplots(height=3.7)
    for m, concept in zip(measured, _SERIES, strict=False):
        axes.plot(lengths, predicted[m], color=theme().ink, linewidth=1, linestyle="--", zorder=4)
        seed_lines(axes, np.array(lengths), measured[m], concept=concept, label=f"{m} needed")
    axes.axvline(trained_at, color=theme().ink, linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n}" for n in lengths])
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel("tokens in the sequence")
    axes.set_ylabel("R² of the reading")
    legend_above(axes, columns=4)
    return figure


@themed
def plot_learning_to_read(steps: Sequence[int], curves: Mapping[int, Array]) -> Figure:
    """Draw the R2 of readers over the steps of their training, by the length that they are trained at.

    Args:
        steps: at which it was measured.
        curves: length -> R2, (seed, step).
    """
    figure, axes = subplots(height=3.3)
    for n, concept in zip(curves, _SERIES, strict=False):
        seed_lines(axes, np.array(steps), curves[n], concept=concept, label=f"{n} tokens")
    axes.set_ylim(-0.05, 1.05)
    axes.set_xlabel("steps")
    axes.set_ylabel("R² of the reading")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_remedies(found: Mapping[str, Array], *, label: str, reference: float) -> Figure:
    """Draw R2 with each remedy, a row each with a dot a seed; dashed where nothing would be lost.

    Args:
        found: name of the remedy -> R2, one a seed.
        label: of the axis.
        reference: where the line stands.
    """
    figure, axes = subplots(height=0.5 * len(found) + 0.8)
    concepts = {name: _SERIES[place % len(_SERIES)] for place, name in enumerate(found)}
    seed_strip(axes, found, label=label, concepts=concepts, reference=reference)
    return figure
