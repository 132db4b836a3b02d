"""Figures of the chapter on initialisation: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator
from measured_transformer.viewer.style import COLOURS, theme, themed
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset

from measured_book.figures.plots import panel_letters, seed_lines, subplots
from measured_book.rooms.initialisation.measure import GROUPS

DESIGN_NAMES: Mapping[str, str] = {
    "plain": "no norm, no skip",
    "skip": "no norm, skip",
    "pre": "pre-norm",
    "post": "post-norm",
}
"""What each way to build a block is called."""
GROUP_NAMES: Mapping[str, str] = {
    "scores": "queries, keys",
    "values": "values, output",
    "network": "feed-forward",
    "embedding": "embedding",
    "unembedding": "unembedding",
}
"""What each group of weights is called."""
RULE_NAMES: Mapping[str, str] = {"standard": "standard", "maximal-update": "muP"}
"""What each rule for the width is called."""
RULE_CONCEPTS: Mapping[str, str] = {"standard": "attention", "maximal-update": "residual"}
"""What each rule for the width is drawn as."""


@themed
def plot_sums(widths: Sequence[int] = (4, 16, 64, 256, 1024), seeds: int = 30) -> Figure:
    """Draw the size of sums of n terms, with random and with equal signs, for two sizes of terms.

    Args:
        widths: numbers of terms.
        seeds: how many random sums.
    """
    figure, axes = subplots(1, 2, height=2.8, sharey=True)
    random = np.random.default_rng(0)
    n = np.array(widths)
    sums = np.abs([[random.choice([-1, 1], k).sum() for k in widths] for _ in range(seeds)])
    for panel, size, name in zip(axes, (n**-0.5, 1 / n), ("1/√n", "1/n"), strict=True):
        spread = np.exp(random.uniform(-0.12, 0.12, sums.shape))
        panel.plot(n * spread, sums * size, ".", color=COLOURS["residual"], alpha=0.35)
        panel.plot(n, np.sqrt(n) * size, "-", color=COLOURS["residual"], linewidth=2)
        panel.plot(n, n * size, "-", color=COLOURS["attention"], linewidth=2)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        _plain_ticks(panel, n)
        panel.set_ylim(1 / 80, 45)
        panel.set_yticks((1 / 32, 1 / 4, 1, 4, 32), ["1/32", "1/4", "1", "4", "32"])
        panel.set_xlabel(f"n terms of size {name}")
    axes[0].set_ylabel("size of the sum")
    axes[0].text(30, 9.0, "aligned", color=COLOURS["attention"], fontsize=10, ha="right")
    axes[0].text(600, 2.4, "random", color=COLOURS["residual"], fontsize=10, ha="center")
    axes[1].text(600, 1.4, "aligned", color=COLOURS["attention"], fontsize=10, ha="center")
    axes[1].text(30, 0.04, "random", color=COLOURS["residual"], fontsize=10, ha="center")
    panel_letters(axes)
    return figure


@themed
def plot_matrices(matrices: Dataset) -> Figure:
    """Draw how large rows are after each of thirty random matrices, without and with ReLU.

    Args:
        matrices: the result ``matrices``.
    """
    figure, axes = subplots(1, 2, height=3.0, sharey=True)
    layers = matrices.layer.values
    panels = (
        (("half", "1/2", "residual"), ("one", "1", "ffn"), ("double", "2", "attention")),
        (("relu", "1", "ffn"), ("relu he", "√2", "learned")),
    )
    for panel, chains, name in zip(axes, panels, ("no activation", "ReLU"), strict=True):
        for chain, label, concept in chains:
            powers = matrices.powers.sel(chain=chain).transpose("seed", "layer").values
            seed_lines(panel, layers, powers, concept=concept, marker_every=10)
            panel.text(
                layers[-1] + 1.2,
                float(powers[:, -1].mean()) + 0.25,
                f"f = {label}",
                color=COLOURS[concept],
                fontsize=9,
                va="bottom",
            )
        panel.axhline(0, color=theme().ink, linewidth=0.8)
        panel.set_title(name, loc="right", fontsize=10)
        panel.set_xlim(0, 41)
        panel.set_xticks((0, 10, 20, 30))
        panel.set_xlabel("matrices passed")
    axes[0].set_ylabel("size, powers of ten")
    panel_letters(axes)
    return figure


@themed
def plot_streams(passages: Dataset) -> Figure:
    """Draw the stream along untrained models, a panel for each design, a line for each factor.

    The panels of a row share their axis: those without norms reach much further than those with.

    Args:
        passages: the result ``passages``.
    """
    figure, axes = subplots(2, 2, height=2.7, sharex=True, sharey="row")
    streams = passages.stream.sel(scaled="rest")
    for panel, (design, name) in zip(axes.flat, DESIGN_NAMES.items(), strict=True):
        _along(panel, streams.sel(design=design))
        panel.set_title(name, loc="right", fontsize=11)
    for panel in axes[:, 0]:
        panel.set_ylabel("stream,\npowers of ten")
    for panel in axes[-1]:
        panel.set_xlabel("blocks passed")
    panel_letters(axes.flat)
    _key_of_factors(figure, axes[0, 0])
    return figure


@themed
def plot_gradients(passages: Dataset) -> Figure:
    """Draw the gradient along untrained models with norms: queries and keys left alone, and multiplied as well.

    Args:
        passages: the result ``passages``.
    """
    figure, axes = subplots(2, 2, height=2.6, sharex=True, sharey=True)
    left_alone = {"rest": "queries, keys as they are", "all": "queries, keys too"}
    for row, design in zip(axes, ("pre", "post"), strict=True):
        for panel, (scaled, words) in zip(row, left_alone.items(), strict=True):
            _along(panel, passages.gradient.sel(scaled=scaled, design=design))
            panel.set_title(f"{DESIGN_NAMES[design]}: {words}", loc="right", fontsize=9)
        row[0].set_ylabel("gradient,\npowers of ten")
    for panel in axes[-1]:
        panel.set_xlabel("blocks below")
    panel_letters(axes.flat)
    _key_of_factors(figure, axes[0, 0])
    return figure


def _along(axes: Axes, values: DataArray) -> None:
    """A line for each factor and seed over the blocks, and one for their mean."""
    factors = values.factor.values
    blocks = values.state.values / 2
    for factor, colour, marker in zip(factors, _shades(len(factors)), "vos^D", strict=True):
        rows = values.sel(factor=factor).transpose("seed", "state").values
        for row in rows:
            axes.plot(blocks, row, color=colour, alpha=0.3, linewidth=0.8)
        axes.plot(
            blocks,
            rows.mean(0),
            color=colour,
            marker=marker,
            markevery=6,
            label=f"{factor:g}",
        )
    axes.axhline(0, color=theme().ink, linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _key_of_factors(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        title="weights multiplied by",
        loc="outside upper center",
        ncols=len(names),
        columnspacing=1.2,
    )


@themed
def plot_groups(untrained_groups: Dataset) -> Figure:
    """Draw what one group of initial weights, divided and multiplied by four, does before training.

    Args:
        untrained_groups: the result ``untrained_groups``.
    """
    figure, axes = subplots(1, 3, height=3.4, sharey=True)
    panels = (
        (untrained_groups.entropy, "entropy of\nattention"),
        (np.log2(untrained_groups.growth), "growth of the\nstream, doublings"),
        (untrained_groups.loss, "first loss\n(nats per byte)"),
    )
    ends = (("/ 4", "v", "residual", -0.16), ("x 4", "^", "attention", 0.16))
    for panel, (values, label) in zip(axes, panels, strict=True):
        panel.axvline(float(values.sel(arm="none").mean()), color=theme().ink, linewidth=1)
        for row, group in enumerate(GROUPS):
            for end, marker, concept, shift in ends:
                found = values.sel(arm=f"{group} {end}").values
                beside = row + shift + np.linspace(-0.1, 0.1, len(found))
                panel.plot(
                    found, beside, marker, color=COLOURS[concept], markersize=4.5, alpha=0.7, mew=0
                )
        panel.set_xlabel(label)
        panel.grid(visible=False, axis="y")
        panel.tick_params(axis="y", length=0)
        panel.xaxis.set_major_locator(MaxNLocator(3))
    axes[0].set_yticks(range(len(GROUPS)), [GROUP_NAMES[group] for group in GROUPS])
    axes[0].set_ylim(len(GROUPS) - 0.5, -0.6)
    handles = [
        figure.axes[0].plot([], [], marker, color=COLOURS[concept], linestyle="")[0]
        for _, marker, concept, _ in ends
    ]
    names = ["divided by 4", "multiplied by 4"]
    figure.legend(handles, names, loc="outside upper center", ncols=2)
    panel_letters(axes)
    return figure


@themed
def plot_coordinates(coordinates: Dataset) -> Figure:
    """Draw how far values inside have moved after one and five updates, over the width, for both rules.

    Args:
        coordinates: the result ``coordinates``.
    """
    figure, axes = subplots(1, 3, height=3.1)
    titles = {"scores": "scores", "stream": "stream", "logits": "logits"}
    widths = coordinates.width.values
    for panel, (value, title) in zip(axes, titles.items(), strict=True):
        for rule, concept in RULE_CONCEPTS.items():
            for update, style in ((1, ":"), (5, "-")):
                found = coordinates.change.sel(rule=rule, value=value, update=update)
                rows = found.transpose("seed", "width").values
                for row in rows:
                    panel.plot(widths, row, style, color=COLOURS[concept], alpha=0.3, linewidth=0.8)
                mean = np.exp(np.log(rows).mean(0))
                panel.plot(widths, mean, style, color=COLOURS[concept], linewidth=2)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        _plain_ticks(panel, widths[::2])
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_title(title, loc="right", fontsize=10)
        panel.set_xlabel("width")
    axes[2].set_yticks((0.2, 0.5, 1, 2, 5), ["0.2", "0.5", "1", "2", "5"])
    axes[0].set_ylabel("change from the\ninitial value")
    handles = [
        figure.axes[0].plot([], [], style, color=COLOURS[concept])[0]
        for concept in RULE_CONCEPTS.values()
        for style in (":", "-")
    ]
    names = [f"{name}, {n}" for name in RULE_NAMES.values() for n in ("1 update", "5 updates")]
    figure.legend(handles, names, loc="outside upper center", ncols=2, columnspacing=1.2)
    panel_letters(axes)
    return figure


@themed
def plot_transfer(transfer: Dataset) -> Figure:
    """Draw the loss over the learning rate for each width, a panel for each rule.

    Args:
        transfer: the result ``transfer``.
    """
    figure, axes = subplots(1, 2, height=3.5, sharey=True)
    rates, widths = transfer.rate.values, transfer.width.values
    order = np.argsort(rates)
    shades = _shades(len(widths))
    for panel, (rule, name) in zip(axes, RULE_NAMES.items(), strict=True):
        for width, colour, marker in zip(widths, shades, "vos^", strict=True):
            rows = transfer.loss.sel(rule=rule, width=width).transpose("seed", "rate").values
            for row in rows[:, order]:
                panel.plot(rates[order], row, color=colour, alpha=0.3, linewidth=0.8)
            mean = rows.mean(0)[order]
            panel.plot(rates[order], mean, color=colour, marker=marker, markersize=4, linewidth=2)
            best = int(mean.argmin())
            panel.plot(
                rates[order][best],
                mean[best],
                marker,
                color=colour,
                markersize=9,
                mec=theme().ink,
                zorder=5,
            )
        panel.set_xscale("log", base=2)
        ticks = rates[order][::2]
        panel.set_xticks(ticks, [f"1/{1 / rate:.0f}" for rate in ticks])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_xlabel("learning rate")
        panel.set_title(name, loc="right", fontsize=11)
    axes[0].set_ylabel("loss after training (nats per byte)")
    lowest = float(transfer.loss.min())
    axes[0].set_ylim(lowest - 0.08, lowest + 1.3)
    handles = [
        figure.axes[0].plot([], [], color=colour, marker=marker)[0]
        for colour, marker in zip(shades, "vos^", strict=True)
    ]
    figure.legend(
        handles,
        [str(width) for width in widths],
        title="width",
        loc="outside upper center",
        ncols=len(widths),
    )
    panel_letters(axes)
    return figure


@themed
def plot_best(transfer: Dataset) -> Figure:
    """Draw the best learning rate of every run over the width, for both rules.

    Args:
        transfer: the result ``transfer``.
    """
    figure, axes = subplots(height=3.2)
    widths = transfer.width.values.astype(float)
    for rule, concept in RULE_CONCEPTS.items():
        best = 2 ** transfer.best.sel(rule=rule).transpose("seed", "width").values
        seed_lines(axes, widths, best, concept=concept, marker_every=1)
        end = float(np.exp(np.log(best[:, -1]).mean()))
        axes.text(
            widths[-1] * 1.07,
            end,
            RULE_NAMES[rule],
            color=COLOURS[concept],
            fontsize=10,
            va="center",
        )
    start = 2 ** float(transfer.best.sel(rule="standard").isel(width=0).mean())
    axes.plot(widths, start * widths[0] / widths, "--", color=theme().ink, linewidth=1)
    axes.text(
        widths[1], start / 2.5, "1/width", color=theme().ink, fontsize=9, ha="right", va="top"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    _plain_ticks(axes, widths)
    axes.set_xlim(widths[0] * 0.93, widths[-1] * 1.5)
    ticks = 2.0 ** np.arange(-9, -2)
    axes.set_yticks(ticks, [f"1/{1 / tick:.0f}" for tick in ticks])
    axes.set_xlabel("width")
    axes.set_ylabel("best learning rate")
    return figure


def _shades(count: int) -> list[tuple[float, float, float, float]]:
    """Colours from small to large: blue, through grey, to orange."""
    ends = (COLOURS["residual"], COLOURS["random"], COLOURS["attention"])
    shades = LinearSegmentedColormap.from_list("measured-scales", ends, N=max(count, 2))
    return [shades(place) for place in range(count)]


def _plain_ticks(axes: Axes, places: ArrayLike) -> None:
    axes.set_xticks(np.asarray(places), [f"{place:g}" for place in np.asarray(places)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
