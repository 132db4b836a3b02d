"""Figures of *Its numbers*: results in, drawings out."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset, concat

from measured_book.figures.kit import Arms, curves, level, panels, plain_ticks, strips

NAMES = {
    "embedding": "embedding\nand reading",
    "attention": "attention",
    "network": "networks",
}
ZERO: Arms = {
    "half": ("residual", "smallest half"),
    "three quarters": ("residual", "smallest three quarters"),
    "most": ("ffn", "smallest nine tenths"),
    "random": ("attention", "a random half"),
}
TOKENS: Arms = {"other": ("residual", "other tokens"), "first": ("attention", "first token")}
OF: Arms = {"own": ("ffn", "its own neuron"), "other": ("none", "another token's neuron")}
FITS: Arms = {
    "transcoder": ("ffn", "transcoder"),
    "neurons": ("residual", "32 strongest neurons"),
    "linear": ("norm", "linear map"),
    "redrawn": ("none", "transcoder, matrices redrawn"),
    "noise": ("none", "transcoder, noise as input"),
}
INSTEAD: Arms = {
    "transcoder": ("ffn", "transcoder"),
    "neurons": ("residual", "32 strongest neurons"),
    "linear": ("norm", "linear map"),
    "mean": ("none", "the network's mean"),
}
GRIDS: Arms = {
    "own levels": ("none", "their own 16 levels"),
    "eight by row": ("residual", "255 levels a row"),
    "four by group": ("ffn", "15 levels for each 32"),
    "four by row": ("attention", "15 levels a row"),
}
SINGLE: Arms = {
    "keys by channel": ("residual", "keys by channel"),
    "keys by token": ("attention", "keys by token"),
    "values by channel": ("attention", "values by channel"),
    "values by token": ("residual", "values by token"),
}
EXACT: Arms = {
    "both": ("none", "all rounded"),
    "fifth exact": ("residual", "fifth token exact"),
    "first exact": ("attention", "first token exact"),
}
MATCH: Arms = {
    "three": ("residual", "three tokens match"),
    "two": ("residual", "two tokens match"),
    "one": ("residual", "one token matches"),
    "random": ("none", "a random place"),
}
KINDS: Arms = {"reference": ("residual", "reference"), "book": ("attention", "this book")}
_TICKS = [1, 5, 10, 15, 20, 25, 30]


@themed
def plot_sizes(sizes: Dataset) -> Figure:
    """Draw the share of each part of the model in its parameters and in the multiplications for a token.

    Args:
        sizes: the result of this name.
    """
    figure, (axes,) = panels(height=2.0, x="share (percent)")
    where = np.arange(len(NAMES))
    for shift, name, concept, label in (
        (-0.2, "count", "residual", "of the parameters"),
        (0.2, "products", "ffn", "of the multiplications"),
    ):
        one = sizes[name].isel(seed=0)
        share = 100 * (one / one.sum()).sel(part=list(NAMES)).values
        axes.barh(where + shift, share, 0.38, color=COLOURS[concept], label=label)
        for place, value in zip(where, share, strict=True):
            axes.annotate(
                f"{value:.0f}", (value, place + shift), (3, 0), textcoords="offset points",
                va="center", fontsize=9, color=theme().ink,
            )  # fmt: skip
    axes.set_yticks(where, list(NAMES.values()))
    axes.invert_yaxis()
    axes.set_xlim(0, 75)
    axes.legend(fontsize=9)
    return figure


@themed
def plot_sparse(sparse: Dataset) -> Figure:
    """Draw how much the loss rises when activations are set to zero at every token.

    Args:
        sparse: the result of this name.
    """
    figure, (axes,) = panels(height=2.0)
    label = "rise of the loss (nats per token)"
    strips(axes, sparse.loss - sparse.whole, ZERO, over="zero", label=label)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(left=-0.06)
    plain_ticks(axes.xaxis, [0, 0.1, 1, 10])
    return figure


@themed
def plot_neurons(neurons: Dataset) -> Figure:
    """Draw by block how many neurons write at a token, and what the value of the strongest one favours.

    Args:
        neurons: the result of this name.
    """
    titles = ("neurons that write", "next token favoured")
    figure, (left, right) = panels(1, 2, height=3.0, x="block", titles=titles)
    curves(left, neurons.writing, "block", TOKENS, over="token")
    left.set_yscale("log")
    left.set_ylim(bottom=0.2)  # room for the legend
    left.legend(fontsize=9, loc="lower left")
    curves(right, neurons.favours, "block", OF, over="of")
    level(right, 0.5)
    right.legend(fontsize=9)
    for axes in (left, right):
        plain_ticks(axes.xaxis, _TICKS)
    return figure


@themed
def plot_features(features: Dataset, controls: Dataset) -> Figure:
    """Draw how much of what one network writes is explained by few parts, and what these cost in its place.

    Args:
        features: the result of this name.
        controls: the result of this name.
    """
    titles = ("explained on other tokens", "in the network's place")
    figure, (upper, lower) = panels(2, 1, height=2.1, titles=titles)
    shares = concat([features.explained, controls.explained.rename(control="fit")], "fit")
    strips(upper, shares, FITS, over="fit", label="share of the variance")
    rise = features.loss - features.whole
    strips(lower, rise, INSTEAD, over="instead", label="rise of the loss (nats per token)")
    return figure


@themed
def plot_weights(weights: Dataset) -> Figure:
    """Draw how much the loss rises when the matrices are rounded once more.

    Args:
        weights: the result of this name.
    """
    figure, (axes,) = panels(height=2.0)
    label = "rise of the loss (nats per token)"
    strips(axes, weights.loss - weights.whole, GRIDS, over="grid", label=label)
    return figure


@themed
def plot_cache(cache: Dataset) -> Figure:
    """Draw how much the loss rises when keys and values have two bits.

    Args:
        cache: the result of this name.
    """
    figure, (upper, lower) = panels(
        2, 1, height=1.7, titles=("keys or values alone", "both"), sharex=True
    )
    rise = (cache.loss - cache.whole).sel(bits=2)
    strips(upper, rise, SINGLE, over="rounded", label="")
    strips(lower, rise, EXACT, over="rounded", label="rise of the loss (nats per token)")
    return figure


@themed
def plot_drafts(drafts: Dataset) -> Figure:
    """Draw with which probability copied tokens are accepted, by how much of the text matches.

    Args:
        drafts: the result of this name.
    """
    figure, (axes,) = panels(height=2.0)
    strips(axes, drafts.accepted, MATCH, over="match", label="probability of acceptance")
    axes.set_xlim(left=0)
    return figure


@themed
def plot_confidence(reading: Dataset) -> Figure:
    """Draw how often the likeliest token is right, by the probability that it is given, for both kinds of text.

    Args:
        reading: the result ``reading``.
    """
    titles = ("probability and truth", "too sure to the right")
    figure, (left, right) = panels(1, 2, height=2.8, titles=titles)
    held = reading.held.fillna(0)
    for kind, (concept, name) in KINDS.items():
        share = held.sel(kind=kind)
        weight = share.sum("seed")
        promised = (share * reading.promised.sel(kind=kind).fillna(0)).sum("seed") / weight
        right_ones = (share * reading.kept.sel(kind=kind).fillna(0)).sum("seed") / weight
        left.plot(promised, right_ones, "o-", ms=4, color=COLOURS[concept], label=name)
    left.plot([0, 1], [0, 1], "--", lw=1, color=theme().ink)
    left.set_xlabel("probability of the likeliest token")
    left.set_ylabel("share that is right")
    left.legend(fontsize=9)
    gap = reading.confidence - reading.accuracy
    strips(right, gap, KINDS, over="kind", label="probability minus share right", reference=0.0)
    return figure
