"""Figures of *The attention sink of a language model*: results in, drawings out."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from measured_transformer.viewer.style import COLOURS, themed
from xarray import Dataset

from measured_book.figures.kit import (
    Arms,
    curves,
    legend_over,
    level,
    name_ends,
    panels,
    plain_numbers,
    plain_ticks,
    strips,
)

STARTS: Arms = {
    "text": ("attention", "the text's own"),
    "turn": ("residual", "<|im_start|>"),
    "comma": ("ffn", "a comma"),
    "newline": ("norm", "a line break"),
    "the": ("learned", "the"),
    "drawn": ("alibi", "drawn at random"),
}
SEES: Arms = {
    "itself": ("attention", "sees only itself"),
    "all": ("residual", "sees all before it"),
}
KEYS: Arms = {"first": ("attention", "the first key"), "fifth": ("residual", "the fifth key")}
TOKENS: Arms = {"first": ("attention", "first token"), "ordinary": ("residual", "ordinary tokens")}
CHANGES: Arms = {
    "largest to zero": ("attention", "largest entry to zero"),
    "ordinary state": ("attention", "an ordinary token's state"),
    "first forbidden": ("attention", "first key forbidden"),
    "mean state": ("residual", "mean state of first tokens"),
    "largest to its mean": ("residual", "largest entry to its mean"),
    "ordinary to zero": ("none", "five entries of an ordinary token to zero"),
}
ATTENDED: Arms = {
    "window": ("attention", "window alone"),
    "one sink": ("residual", "window and one sink"),
    "one sink renumbered": ("rotary", "the same, renumbered"),
    "four sinks": ("ffn", "window and four sinks"),
}
GROUPS: Arms = {
    "sinking": ("attention", "rest on the first token"),
    "matched": ("residual", "others that write as much"),
    "random": ("none", "others at random"),
}
_TICKS = [1, 5, 10, 15, 20, 25, 30]


@themed
def plot_looking(looking: Dataset) -> Figure:
    """Draw by block how much weight the first token gets, whatever it is, and how much of it arrives.

    Args:
        looking: the result of this name.
    """
    titles = ("weight on the first token", "what arrives")
    figure, (left, right) = panels(1, 2, height=3.0, x="block", titles=titles, sharey=True)
    curves(left, looking.weight.mean("head"), "block", STARTS, over="start")
    curves(left, looking.control.mean("head"), "block", {"": ("random", "directions redrawn")})
    text = looking.weight.sel(start="text").mean("head")
    curves(right, text, "block", {"": ("attention", "weight")}, names="end")
    curves(
        right,
        looking.part.mean("head"),
        "block",
        {"": ("ffn", "share of\nwhat arrives")},
        names="end",
    )
    for axes in (left, right):
        axes.set_ylim(0, 1)
        plain_ticks(axes.xaxis, _TICKS)
    legend_over(figure, left, columns=4, size=9)
    return figure


@themed
def plot_alone(looking: Dataset) -> Figure:
    """Draw by block the weight on a token in the middle: when it sees all before it, and when only itself.

    Args:
        looking: the result ``looking``.
    """
    titles = ("weight on the token in the middle", "weight on the first token")
    figure, (left, right) = panels(1, 2, height=2.7, x="block", titles=titles, sharey=True)
    curves(left, looking.middle, "block", SEES, over="sees", names="end")
    curves(right, looking.beside, "block", SEES, over="sees")
    for axes in (left, right):
        axes.set_ylim(0, 1)
        plain_ticks(axes.xaxis, _TICKS)
    return figure


@themed
def plot_forbidden(forbidden: Dataset) -> Figure:
    """Draw how much the loss rises when a key is forbidden from a block on.

    Args:
        forbidden: the result of this name.
    """
    figure, (axes,) = panels(
        height=2.8, x="forbidden from this block on", y="rise (nats per token)"
    )
    rise = forbidden.loss - forbidden.plain
    curves(axes, rise, "onward", KEYS, over="key")
    level(axes, 0.0)
    plain_ticks(axes.xaxis, _TICKS)
    name_ends(axes)
    return figure


@themed
def plot_massive(massive: Dataset) -> Figure:
    """Draw the largest entry of states by depth, and what each block adds to that of the first token.

    Args:
        massive: the result of this name.
    """
    titles = ("largest entry of a state", "written into it (share)")
    figure, (left, right) = panels(1, 2, height=3.0, titles=titles)
    left.set_yscale("log")
    curves(left, massive["size"], "state", TOKENS, over="token", names="end")
    plain_numbers(left.yaxis)
    left.set_xlabel("after block")
    written = massive.written.mean("seed")
    for shift, (by, concept) in zip(
        (-0.2, 0.2), {"attention": "attention", "network": "ffn"}.items(), strict=True
    ):
        values = written.sel(by=by)
        right.bar(values.block + shift, values, 0.4, color=COLOURS[concept], label=by)
    right.set_xlabel("block")
    right.legend(fontsize=9)
    for axes in (left, right):
        axes.xaxis.set_major_locator(FixedLocator([0, *_TICKS[1:]] if axes is left else _TICKS))
    return figure


@themed
def plot_shock(massive: Dataset) -> Figure:
    """Draw how much the loss rises after each change of one state.

    Args:
        massive: the result ``massive``.
    """
    figure, (axes,) = panels(height=2.6)
    strips(
        axes,
        massive.loss - massive.plain,
        CHANGES,
        over="change",
        label="rise of the loss (nats per token)",
    )
    return figure


@themed
def plot_windows(windows: Dataset) -> Figure:
    """Draw how much the loss behind the window rises, by which keys are kept.

    Args:
        windows: the result of this name.
    """
    figure, (axes,) = panels(height=2.0)
    rise = windows.loss - windows.loss.sel(keys="all", drop=True)
    strips(axes, rise, ATTENDED, over="keys", label="rise of the loss (nats per token)")
    return figure


@themed
def plot_dormant(dormant: Dataset) -> Figure:
    """Draw how much the loss rises without one sixth of the heads.

    Args:
        dormant: the result of this name.
    """
    figure, (axes,) = panels(height=1.8)
    strips(
        axes,
        dormant.loss - dormant.plain,
        GROUPS,
        over="heads",
        label="rise of the loss (nats per token)",
    )
    return figure
