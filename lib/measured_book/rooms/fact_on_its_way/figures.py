"""Figures of *A fact on its way*: results in, drawings out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import (
    Arms,
    curves,
    legend_over,
    level,
    name_ends,
    panels,
    plain_ticks,
    strips,
)

PLACES: Arms = {"subject": ("attention", "subject"), "last": ("residual", "last token")}
GROUPS: Arms = {
    "chosen": ("attention", "ten chosen heads"),
    "matched": ("residual", "heads that write as much"),
    "random": ("none", "heads at random"),
}
READ: Arms = {
    "patched": ("residual", "restored by patching"),
    "logit": ("attention", "read by the logit lens"),
    "fitted": ("norm", "read by a fitted lens"),
}
WHAT: Arms = {"found": ("residual", "found"), "edited": ("attention", "edited")}
DIRECTIONS: Arms = {
    "relation": ("attention", "difference of relations"),
    "random": ("none", "random directions"),
}
WAYS: Arms = {
    "subject": ("attention", "state at the subject"),
    "last": ("residual", "state at the last token"),
    "vector": ("norm", "vector at the last token"),
}
_BLOCKS = [0, 6, 12, 18, 24, 30]


@themed
def plot_traced(traced: Dataset) -> Figure:
    """Draw by block the share that returns with the state at the subject and at the last token.

    Args:
        traced: the result of this name.
    """
    titles = ("the subject is blurred", "another subject")
    figure, axes = panels(
        1, 2, height=2.9, x="blocks before", y="share that returns", titles=titles, sharey=True
    )
    for one, base in zip(axes, ("noise", "name"), strict=True):
        curves(one, traced.effect.sel(base=base), "state", PLACES, over="position")
        plain_ticks(one.xaxis, _BLOCKS)
    curves(axes[1], traced.lens_share, "state", {"": ("norm", "read by the lens")})
    legend_over(figure, axes[1])
    return figure


@themed
def plot_networks(networks: Dataset) -> Figure:
    """Draw the share that returns with the networks of five blocks, by the last of them.

    Args:
        networks: the result of this name.
    """
    figure, (axes,) = panels(height=2.8, x="last block of five", y="share that returns")
    curves(axes, networks.effect, "window", PLACES, over="position")
    level(axes, 0.0)
    plain_ticks(axes.xaxis, networks.window.values)
    name_ends(axes)
    return figure


@themed
def plot_heads(heads: Dataset) -> Figure:
    """Draw how much of the difference falls when ten heads hand on what they do for another subject.

    Args:
        heads: the result of this name.
    """
    figure, (axes,) = panels(height=1.8)
    strips(
        axes,
        heads.fall,
        GROUPS,
        over="heads",
        label="fall (share of the difference)",
        reference=0.0,
    )
    return figure


@themed
def plot_lenses(lenses: Dataset) -> Figure:
    """Draw by block the share of the last token's answer that patching restores and that two lenses read.

    Args:
        lenses: the result of this name.
    """
    figure, (axes,) = panels(height=2.9, x="blocks before", y="share of the difference")
    curves(axes, lenses.share, "state", READ, over="read")
    level(axes, 0.0)
    plain_ticks(axes.xaxis, _BLOCKS)
    legend_over(figure, axes)
    return figure


@themed
def plot_edited(edited: Dataset) -> Figure:
    """Draw by block how much networks restore, and how much an edit of one turns.

    Args:
        edited: the result of this name.
    """
    figure, (axes,) = panels(height=2.8, x="block", y="share of the difference")
    curves(axes, edited.effect, "block", WHAT, over="what")
    level(axes, 0.0)
    plain_ticks(axes.xaxis, edited.block.values)
    name_ends(axes)
    return figure


@themed
def plot_steered(steered: Dataset) -> Figure:
    """Draw by dose how far a vector turns answers, and what it costs ordinary text.

    Args:
        steered: the result of this name.
    """
    titles = ("turned (share of the way)", "price (nats per token)")
    figure, axes = panels(1, 2, height=2.8, x="dose", titles=titles)
    for one, values in zip(axes, (steered.turned, steered.price), strict=True):
        curves(one, values, "dose", DIRECTIONS, over="direction")
        level(one, 0.0)
        plain_ticks(one.xaxis, [1, 2, 4])
    legend_over(figure, axes[0])
    return figure


@themed
def plot_questions(questions: Dataset) -> Figure:
    """Draw before which block another question turns the answer.

    Args:
        questions: the result of this name.
    """
    figure, (axes,) = panels(height=2.8, x="blocks before", y="share of the way")
    curves(axes, questions.turned, "state", WAYS, over="way")
    level(axes, 0.0)
    plain_ticks(axes.xaxis, _BLOCKS)
    name_ends(axes)
    return figure
