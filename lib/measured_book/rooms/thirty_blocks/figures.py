"""Figures of *Thirty blocks*: results in, drawings out."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.kit import (
    Arms,
    curves,
    level,
    panels,
    plain_numbers,
    plain_ticks,
    strips,
)
from measured_book.figures.plots import heat_map

TOKENS: Arms = {"other": ("residual", "other tokens"), "first": ("attention", "first token")}
PARTS: Arms = {"attention": ("attention", "attention"), "network": ("ffn", "network")}
LENSES: Arms = {"logit": ("attention", "logit lens"), "linear": ("residual", "linear map")}
CHANGES: Arms = {
    "out": ("residual", "left out"),
    "swapped": ("attention", "swapped"),
    "twice": ("ffn", "run twice"),
}
LENGTHS: Arms = {4: ("residual", "4 blocks"), 8: ("attention", "8 blocks")}
MIDDLE: Arms = {
    "twice": ("ffn", "all ten twice"),
    "shuffled": ("residual", "random order"),
    "reversed": ("residual", "reversed"),
    "out": ("none", "left out"),
    "repeated": ("attention", "one of them ten times"),
}
HOW: Arms = {
    "zero": ("attention", "nothing"),
    "resample": ("ffn", "another text's"),
    "mean": ("residual", "its mean"),
}
WAYS: Arms = {
    "zero": ("attention", "zero"),
    "zero behind": ("attention", "zero behind the first token"),
    "resample": ("ffn", "another text's"),
    "mean": ("residual", "mean"),
}
BY: Arms = {
    "length": ("ffn", "by length"),
    "sign": ("norm", "by sign"),
    "gradient": ("attention", "by gradient"),
    "anew": ("residual", "gradient anew"),
}
REPAIRS: Arms = {
    "direct": ("attention", "directly"),
    "later": ("residual", "through later sublayers"),
    "norm": ("norm", "by the divisor"),
}
SCHEMES: Arms = {
    "raw": ("attention", "raw"),
    "interpolated": ("ffn", "interpolated"),
    "NTK": ("norm", "NTK"),
    "YaRN": ("residual", "YaRN"),
}
GROUPS: Arms = {
    "fastest": ("attention", "fastest eight"),
    "fast": ("attention", "next eight"),
    "slow": ("residual", "next eight"),
    "slowest": ("residual", "slowest eight"),
}
NEEDLES: Arms = {256: ("residual", "256 tokens"), 1024: ("attention", "1,024 tokens")}
_TICKS = [1, 5, 10, 15, 20, 25, 30]


@themed
def plot_growth(stream: Dataset) -> Figure:
    """Draw how long the stream is after each number of blocks, and how much each sublayer adds to it.

    Args:
        stream: the result of this name.
    """
    titles = ("length of the stream", "write over stream")
    figure, (left, right) = panels(1, 2, height=3.0, titles=titles)
    trained = stream.sel(arm="trained")
    curves(left, trained.length, "state", TOKENS, over="token")
    redrawn = stream.length.sel(arm="same spectrum", token="other")
    curves(left, redrawn, "state", {"": ("random", "directions redrawn")})
    left.set_yscale("log")
    left.set_xlabel("blocks passed")
    plain_numbers(left.yaxis)
    left.legend(fontsize=8)
    curves(right, trained.written.sel(token="other"), "block", PARTS, over="part")
    right.set_xlabel("block")
    right.set_yscale("log")
    plain_numbers(right.yaxis)
    right.legend(fontsize=8)
    plain_ticks(right.xaxis, _TICKS)
    return figure


@themed
def plot_kept(stream: Dataset) -> Figure:
    """Draw how far a block turns the stream, and how alike the stream is after any two numbers of blocks.

    Args:
        stream: the result of this name.
    """
    titles = ("before, after a block", "any two depths")
    figure, (left, right) = panels(1, 2, height=3.0, titles=titles)
    curves(left, stream.kept.sel(arm="trained"), "block", TOKENS, over="token")
    redrawn = stream.kept.sel(arm="same spectrum", token="other")
    curves(left, redrawn, "block", {"": ("random", "directions redrawn")})
    left.set_ylim(0, 1.02)
    left.set_xlabel("block")
    left.set_ylabel("cosine")
    left.legend(fontsize=8, loc="lower right")
    plain_ticks(left.xaxis, _TICKS)
    cells = stream.alike.mean("seed").transpose("state", "other").values
    heat_map(
        right, cells, label="cosine", x_label="blocks passed", y_label="blocks passed",
        limits=(0.0, 1.0),
    )  # fmt: skip
    return figure


@themed
def plot_lens(lens: Dataset) -> Figure:
    """Draw the loss that is read off the stream after each number of blocks.

    Args:
        lens: the result of this name.
    """
    figure, (axes,) = panels(height=2.8, x="blocks passed", y="loss (nats per token)")
    curves(axes, lens.read.mean("half"), "state", LENSES, over="lens")
    axes.set_ylim(0, None)
    axes.legend(fontsize=9)
    return figure


@themed
def plot_blocks(blocks: Dataset) -> Figure:
    """Draw what becomes of loss and predictions when something is done to a block.

    Args:
        blocks: the result of this name.
    """
    titles = ("rise of the loss (nats per token)", "predictions that stay")
    figure, (left, right) = panels(1, 2, height=3.0, x="block", titles=titles)
    curves(left, (blocks.loss - blocks.whole).clip(min=0.01), "block", CHANGES, over="change")
    left.set_yscale("log")
    plain_numbers(left.yaxis)
    left.legend(fontsize=8)
    curves(right, blocks.same, "block", CHANGES, over="change")
    right.set_ylim(0, 1)
    for axes in (left, right):
        plain_ticks(axes.xaxis, _TICKS)
    return figure


@themed
def plot_runs(runs: Dataset, middle: Dataset) -> Figure:
    """Draw what runs of blocks are worth, by their first block, and what may stand in the place of ten.

    Args:
        runs, middle: the results of these names.
    """
    titles = ("without a run", "blocks 11 to 20")
    figure, (left, right) = panels(1, 2, height=3.2, titles=titles)
    curves(left, runs.loss - runs.whole, "block", LENGTHS, over="length")
    for length, (concept, _) in LENGTHS.items():
        place = runs.place.sel(length=length).values
        chosen = (runs.chosen - runs.whole).sel(length=length).values
        left.plot(
            place, chosen, "D", color=COLOURS[concept], mec=theme().ink, markersize=6, zorder=4
        )
    left.set_yscale("log")
    plain_numbers(left.yaxis)
    left.set_xlabel("first block of the run")
    left.set_ylabel("rise of the loss (nats)")
    left.legend(fontsize=8)
    strips(
        right, middle.loss - middle.whole, MIDDLE, over="change", label="rise of the loss (nats)"
    )
    return figure


@themed
def plot_heads(heads: Dataset) -> Figure:
    """Draw what each head is worth alone: over block and head, and sorted, in three ways of taking it away.

    Args:
        heads: the result of this name.
    """
    titles = ("set to its mean", "all 270, sorted")
    figure, (left, right) = panels(1, 2, height=3.4, titles=titles)
    rise = (heads.loss - heads.whole).mean("seed")
    cells = rise.sel(how="mean").transpose("block", "head").values
    reach = float(np.nanquantile(np.abs(cells), 0.99))
    heat_map(
        left, cells, label="rise of the loss (nats)", x_label="head", y_label="block",
        diverging=True, limits=(-reach, reach),
    )  # fmt: skip
    left.set_xticks(range(9), [str(i) for i in range(1, 10)])
    left.set_yticks([i - 1 for i in _TICKS], [str(i) for i in _TICKS])
    for how, (concept, name) in HOW.items():
        values = np.sort(rise.sel(how=how).values.ravel())
        right.plot(np.arange(1, len(values) + 1), values, color=COLOURS[concept], label=name)
    level(right, 0.02)
    right.set_yscale("symlog", linthresh=0.02)
    plain_ticks(right.yaxis, [-0.02, 0, 0.02, 0.1, 1])
    right.set_xlabel("heads")
    right.set_ylabel("rise of the loss (nats)")
    right.legend(fontsize=8, loc="upper left", title="hands on")
    return figure


@themed
def plot_sets(sets: Dataset) -> Figure:
    """Draw what sets of heads are worth: in four orders and at random, and in four ways of taking them away.

    Args:
        sets: the result of this name.
    """
    titles = ("set to their means", "27 at random, set to")
    figure, (left, right) = panels(1, 2, height=3.2, titles=titles)
    rise = sets.loss - sets.whole
    random = sets.random.mean("order") - sets.whole
    sizes = sets.heads.values
    curves(left, random, "heads", {"": ("none", "at random")}, x=sizes)
    curves(left, rise, "heads", BY, over="by", x=sizes)
    level(left, 0.0)
    plain_ticks(left.xaxis, sizes)
    left.set_xlabel("heads taken away, of 270")
    left.set_ylabel("rise of the loss (nats)")
    left.legend(fontsize=8)
    strips(
        right,
        sets.taken.mean("order") - sets.whole,
        WAYS,
        over="how",
        label="rise of the loss (nats)",
    )
    return figure


@themed
def plot_repair(repair: Dataset) -> Figure:
    """Draw what the right logit loses when each attention is silenced, and what is made up.

    Args:
        repair: the result of this name.
    """
    figure, (axes,) = panels(height=3.0, x="block", y="change of the right logit")
    for name, arm in REPAIRS.items():
        curves(axes, repair[name].sel(block=slice(2, 30)), "block", {"": arm})
    level(axes, 0.0)
    plain_ticks(axes.xaxis, _TICKS)
    axes.legend(fontsize=8, loc="lower right")
    return figure


@themed
def plot_far(far: Dataset) -> Figure:
    """Draw the loss behind a gap in the positions, by the size of the gap, and how positions are stretched.

    Args:
        far: the result of this name.
    """
    titles = ("the same tokens again", "other tokens")
    figure, panes = panels(1, 2, height=3.0, titles=titles, x="positions left out")
    gaps = far.gap.values
    for axes, values in zip(panes, (far.loss, far.fresh), strict=True):
        curves(axes, values, "gap", SCHEMES, over="scheme", x=np.arange(len(gaps)))
        axes.set_xticks(range(len(gaps)), [f"{gap:,}" for gap in gaps])
        axes.tick_params(axis="x", labelsize=8)
        axes.set_ylim(0, None)
    panes[0].set_ylabel("loss (nats per token)")
    panes[0].legend(fontsize=8)
    return figure


@themed
def plot_needle(needle: Dataset, needle_apart: Dataset) -> Figure:
    """Draw what a word costs by the depth of its line, and with positions left out between lines.

    Args:
        needle: the result `needle` or `needle_again`.
        needle_apart: the result of this name.
    """
    titles = ("two lengths", "positions left out")
    figure, (left, right) = panels(1, 2, height=3.0, titles=titles, x="depth of the line")
    for length, (concept, _) in NEEDLES.items():
        half = needle.nats.sel(length=length).quantile((0.25, 0.75), "seed")
        left.fill_between(half.depth, *half.values, color=COLOURS[concept], alpha=0.2, linewidth=0)
    curves(left, needle.nats.mean("seed"), "depth", NEEDLES, over="length")
    left.set_ylabel("nats for the word")
    left.set_ylim(0, 4)
    left.legend(fontsize=8)
    curves(right, needle_apart.nats.isel(gap=-1), "depth", SCHEMES, over="scheme")
    right.set_ylim(0, None)
    right.legend(fontsize=8)
    return figure


@themed
def plot_pairs(pairs: Dataset) -> Figure:
    """Draw what turning each quarter of the pairs is worth, how long they are, and scores over distance.

    Args:
        pairs: the result of this name.
    """
    titles = ("not turned", "share of the lengths", "score over distance")
    figure, (left, centre, right) = panels(
        1, 3, height=3.0, titles=titles, width_ratios=(1, 1, 1.2)
    )
    names: Arms = {group: (concept, group) for group, (concept, _) in GROUPS.items()}
    strips(left, pairs.loss - pairs.whole, names, over="group", label="rise of the loss (nats)")
    strips(centre, pairs.use, names, over="group", label="share", reference=0.25)
    centre.set_yticklabels([])
    curves(right, pairs.curve, "distance", {"": ("residual", "")}, names="")
    right.set_xscale("log", base=2)
    plain_ticks(right.xaxis, [1, 8, 64, 512, 4096])
    right.tick_params(axis="x", labelsize=8)
    right.set_xlabel("distance")
    right.set_ylabel("in standard deviations")
    level(right, 0.0)
    return figure


@themed
def plot_scores(scores: Dataset) -> Figure:
    """Draw the loss with all scores multiplied, and how even the weights are by block.

    Args:
        scores: the result of this name.
    """
    titles = ("all scores times a factor", "relative entropy of a row")
    figure, (left, right) = panels(1, 2, height=3.0, titles=titles)
    curves(left, scores.loss, "factor", {"": ("residual", "loss")}, names="")
    left.set_xscale("log", base=2)
    plain_ticks(left.xaxis, [0.5, 1, 2, 4, 8])
    left.set_xlabel("factor")
    left.set_ylabel("loss (nats per token)")
    factors: Arms = {
        0.5: ("ffn", "times 0.5"),
        1.0: ("residual", "as trained"),
        2.0: ("attention", "times 2"),
    }
    curves(right, scores.entropy, "block", factors, over="factor")
    right.set_ylim(0, 1)
    right.set_xlabel("block")
    right.legend(fontsize=8)
    plain_ticks(right.xaxis, _TICKS)
    return figure
