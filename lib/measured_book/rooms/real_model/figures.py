"""Figures about a checkpoint on the bench: results in, drawings out."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator
from measured_transformer.viewer.style import COLOURS, theme, themed
from numpy.typing import NDArray
from xarray import DataArray, Dataset

from measured_book.figures.plots import heat_map, panel_letters, seed_lines, subplots

_ARMS = {"trained": "residual", "shuffled": "random", "untrained": "none"}
_PARTS = {
    "tokens": "residual",
    "positions": "sinusoidal",
    "attention": "attention",
    "feed-forward": "ffn",
    "norms": "norm",
    "head": "none",
}

_BASES = {"latents": "all latents", "neurons": "neurons", "random": "random directions"}
_KINDS = {
    "token": "token",
    "before": "token before",
    "after": "token after",
    "position": "position",
    "sentence": "other words",
}


def _rows(values: DataArray, along: str) -> NDArray[np.float64]:
    return np.asarray(values.transpose("seed", along).values, dtype=float)


def _name(axes: Axes, text: str, at: tuple[float, float], concept: str, **how: str) -> None:
    """Write a line's name beside it, in its colour."""
    axes.text(*at, text, color=COLOURS[concept], fontsize=9, **how)  # type: ignore[arg-type]


@themed
def plot_parameters(parameters: Dataset) -> Figure:
    """Draw where the parameters of both models lie: a bar each, cut into parts.

    Args:
        parameters: the result of this name.
    """
    figure, axes = subplots(height=2.5)
    names = {"book": "the book's model", "MiniLM": "MiniLM"}
    for row, (model, name) in enumerate(names.items()):
        count = parameters["count"].sel(model=model).values.reshape(-1).astype(float)
        start = 0.0
        for part, share in zip(parameters.part.values.tolist(), count / count.sum(), strict=True):
            if not share:
                continue
            axes.barh(row, share, 0.62, start, color=COLOURS[_PARTS[part]], ec=theme().paper)
            if share > 0.1:
                axes.text(
                    start + share / 2, row, f"{part}\n{share:.0%}", ha="center", va="center",
                    color="white" if part == "tokens" else "black", fontsize=9,
                )  # fmt: skip
            start += share
        total = count.sum()
        told = f"{total / 1e6:.1f} million" if total > 1e6 else f"{total / 1e3:.0f} thousand"
        axes.text(0, row + 0.37, f"{name}, {told} parameters", va="bottom", fontsize=9)
    axes.set_yticks([])
    axes.set_ylim(-0.45, 1.75)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of all parameters")
    return figure


@themed
def plot_atlas(attention: Dataset) -> Figure:
    """Draw all heads four times: weight on [CLS], weight on the token before, distance, what [CLS] hands over.

    Args:
        attention: the result of this name.
    """
    figure, axes = subplots(2, 2, height=2.9)
    atlas = attention.atlas.sel(arm="trained").mean("seed")
    length = attention.length.sel(arm="trained", target="first").mean("seed")
    panels = (
        (atlas.sel(statistic="first"), "weight on [CLS]", (0.0, 1.0)),
        (length.clip(max=1.0), "length of what [CLS] gives", (0.0, 1.0)),
        (atlas.sel(statistic="previous"), "weight on the token before", (0.0, 1.0)),
        (atlas.sel(statistic="within"), "distance within the text", (0.0, 10.0)),
    )
    for panel, (values, label, limits) in zip(axes.flat, panels, strict=True):
        cells = values.transpose("block", "head").values
        heat_map(panel, cells, label=label, x_label="head", y_label="block", limits=limits)
        panel.set_xticks(range(0, 12, 2), [str(i) for i in range(1, 13, 2)])
        panel.set_yticks(range(6), [str(i) for i in range(1, 7)])
    panel_letters(axes.flat)
    return figure


@themed
def plot_sink(attention: Dataset) -> Figure:
    """Draw by block how much weight [CLS] gets, and how much of what arrives is from it.

    Args:
        attention: the result of this name.
    """
    figure, axes = subplots(height=3.2)
    atlas = attention.atlas.sel(statistic="first").mean("head")
    lines = (
        (atlas.sel(arm="trained"), "attention", "weight on [CLS]", (3.05, 0.525)),
        (
            attention.part.sel(arm="trained", target="first").mean("head"),
            "ffn",
            "its share of what arrives",
            (3.05, 0.095),
        ),
        (atlas.sel(arm="shuffled"), "random", "weight, numbers shuffled", (4.2, 0.004)),
    )
    for values, concept, name, at in lines:
        seed_lines(axes, values.block.values, _rows(values, "block"), concept=concept)
        _name(axes, name, at, "none" if concept == "random" else concept)
    axes.set_ylim(0, 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("block")
    axes.set_ylabel("share")
    return figure


@themed
def plot_massive(stream: Dataset) -> Figure:
    """Draw how far the largest entry sticks out at each kind of token, and what overwriting it does.

    Args:
        stream: the result of this name.
    """
    figure, axes = subplots(1, 2, height=3.2)
    trained = stream.outsized.sel(arm="trained")
    kinds = {
        "first": ("attention", "[CLS]", (2.2, 520.0)),
        "separator": ("norm", "[SEP]", (2.4, 27.0)),
        "text": ("residual", "words", (2.05, 11.4)),
    }
    for where, (concept, name, at) in kinds.items():
        rows = _rows(trained.sel(where=where), "state")
        seed_lines(axes[0], stream.state.values, rows, concept=concept)
        _name(axes[0], name, at, concept)
    shuffled = _rows(stream.outsized.sel(arm="shuffled", where="first"), "state")
    seed_lines(axes[0], stream.state.values, shuffled, concept="random")
    _name(axes[0], "[CLS], shuffled", (0.1, 2.4), "none")
    axes[0].set_yscale("log")
    axes[0].set_ylim(2, 1000)
    axes[0].yaxis.set_major_locator(FixedLocator([3, 10, 30, 100, 300, 1000]))
    axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].set_xlabel("blocks passed")
    axes[0].set_ylabel("largest entry over median entry")
    changes = {
        "largest to zero": ("attention", "largest entry\nto zero"),
        "largest to its mean": ("ffn", "largest entry\nto its mean"),
        "others to zero": ("none", "another entry\nto zero"),
    }
    for row, (change, (concept, _)) in enumerate(changes.items()):
        values = stream.moved.sel(change=change).values
        axes[1].plot(values, np.full(len(values), row), "o", color=COLOURS[concept], alpha=0.5)
    axes[1].set_yticks(range(3), [name for _, name in changes.values()])
    axes[1].set_ylim(2.5, -0.5)
    axes[1].set_xlim(-0.02, 0.5)
    axes[1].set_xlabel("how far texts move")
    panel_letters(axes)
    return figure


@themed
def plot_words(stream: Dataset) -> Figure:
    """Draw, for the model and its two controls, how alike two words are that share one thing.

    Args:
        stream: the result of this name.
    """
    figure, axes = subplots(1, 3, height=3.4, sharey=True)
    kinds = {
        "token": ("residual", "same token"),
        "position": ("alibi", "same position"),
        "text": ("attention", "same sentence"),
    }
    titles = {
        "trained": "(a) MiniLM",
        "shuffled": "(b) numbers shuffled",
        "untrained": "(c) untrained",
    }
    for panel, (arm, title) in zip(axes, titles.items(), strict=True):
        for kin, (concept, name) in kinds.items():
            rows = _rows(stream.kinship.sel(arm=arm, kin=kin), "state")
            seed_lines(panel, stream.state.values, rows, concept=concept, label=name)
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_xlabel("blocks passed")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("how alike two words are")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=10)
    return figure


@themed
def plot_layers(stream: Dataset) -> Figure:
    """Draw how well sentences find their partners by each state, and without each block.

    Args:
        stream: the result of this name.
    """
    figure, axes = subplots(1, 2, height=3.3)
    for arm, concept in _ARMS.items():
        rows = _rows(stream.retrieval.sel(arm=arm), "state")
        seed_lines(axes[0], stream.state.values, rows, concept=concept)
    _name(axes[0], "MiniLM", (2.6, 0.5), "residual")
    _name(axes[0], "untrained", (4.2, 0.3), "none")
    _name(axes[0], "shuffled", (4.0, 0.08), "none")
    axes[0].set_ylim(0, 0.75)
    axes[0].set_xlabel("blocks passed")
    axes[0].set_ylabel("reciprocal rank of the partner")
    fall = stream.skipped - stream.retrieval.sel(arm="trained", state=6)
    axes[1].axhline(0, color=theme().ink, linestyle="--", linewidth=1)
    seed_lines(axes[1], stream.block.values, _rows(fall, "block"), concept="attention")
    axes[1].set_xlabel("block left out")
    axes[1].set_ylabel("change of the reciprocal rank")
    panel_letters(axes)
    return figure


@themed
def plot_heads(heads: Dataset) -> Figure:
    """Draw for every head how far a text moves without it, in two ways of taking it away.

    Args:
        heads: the result of this name.
    """
    figure, axes = subplots(1, 2, height=2.9)
    names = {"zero": "handing on nothing", "resample": "handing on another text's"}
    for panel, (how, name) in zip(axes, names.items(), strict=True):
        cells = 100 * heads.moved.sel(how=how).mean("seed").transpose("block", "head").values
        heat_map(
            panel, cells, label="% of the way to another text", x_label="head", y_label="block",
            limits=(0.0, 8.0),
        )  # fmt: skip
        panel.set_xticks(range(0, 12, 2), [str(i) for i in range(1, 13, 2)])
        panel.set_yticks(range(6), [str(i) for i in range(1, 7)])
        letter = "ab"[how == "resample"]
        panel.set_title(f"({letter}) {name}", loc="left", fontsize=10)
    return figure


@themed
def plot_alike(stream: Dataset) -> Figure:
    """Draw how alike the states after each two numbers of blocks are, in the model and with shuffled numbers.

    Args:
        stream: the result of this name.
    """
    figure, axes = subplots(1, 2, height=3.1)
    titles = {"trained": "(a) MiniLM", "shuffled": "(b) numbers shuffled"}
    for panel, (arm, title) in zip(axes, titles.items(), strict=True):
        cells = stream.alike.sel(arm=arm).mean("seed").transpose("state", "other").values
        heat_map(
            panel, cells, label="CKA", x_label="blocks passed", y_label="blocks passed",
            limits=(0.0, 1.0),
        )  # fmt: skip
        panel.set_title(title, loc="left", fontsize=10)
    return figure


@themed
def plot_features(features: Dataset) -> Figure:
    """Draw how much of the states few latents keep, and how well units answer to what can be said of a word.

    Args:
        features: the result of this name.
    """
    figure, (kept, judged) = subplots(1, 2, height=4.0, width_ratios=(1, 1.15))
    names = {
        "untrained": ("none", "untrained", (5.2, 0.965)),
        "trained": ("residual", "MiniLM", (4.2, 0.755)),
        "noise": ("random", "noise", (5.4, 0.24)),
    }
    for source, (concept, name, at) in names.items():
        rows = _rows(features.explained.sel(source=source), "speaking")
        seed_lines(kept, features.speaking.values, rows, concept=concept)
        _name(kept, name, at, "none" if concept == "random" else concept)
    token = float(features.token_alone.sel(model="trained").mean())
    kept.axhline(token, color=theme().ink, linestyle="--", linewidth=1)
    kept.text(4, token - 0.01, "knowing the token", ha="left", va="top", fontsize=9)
    kept.set_xscale("log", base=2)
    kept.set_xticks(features.speaking.values, [str(k) for k in features.speaking.values])
    kept.set_ylim(0, 1)
    kept.set_xlabel("active latents per state")
    kept.set_ylabel("share of variance rebuilt")
    lines = [(name, features.own.sel(basis=basis)) for basis, name in _BASES.items()]
    best = features.best.sel(basis="latents")
    lines += [(name, best.sel(kind=kind)) for kind, name in _KINDS.items()]
    places = [row + 0.6 * (row >= len(_BASES)) for row in range(len(lines))]
    for place, (_, values) in zip(places, lines, strict=True):
        for model, concept, shift in (("untrained", "none", 0.19), ("trained", "residual", -0.19)):
            here = values.sel(model=model).values
            judged.plot(
                here, place + shift + np.linspace(-0.12, 0.12, len(here)), "o",
                color=COLOURS[concept], alpha=0.6, markersize=4, mew=0,
            )  # fmt: skip
            judged.plot(
                here.mean(),
                place + shift,
                "D",
                color=COLOURS[concept],
                mec=theme().ink,
                markersize=5,
            )
    own = lines[0][1].mean("seed")
    _name(judged, "MiniLM", (float(own.sel(model="trained")), -0.4), "residual", ha="right")
    _name(judged, "untrained", (float(own.sel(model="untrained")), -0.2), "none", ha="left")
    judged.set_yticks(places, [name for name, _ in lines])
    judged.set_ylim(places[-1] + 0.5, -0.85)
    judged.tick_params(axis="y", length=0)
    judged.grid(visible=False, axis="y")
    judged.set_xlim(0, 1)
    judged.set_xlabel("mean F1")
    panel_letters((kept, judged))
    return figure
