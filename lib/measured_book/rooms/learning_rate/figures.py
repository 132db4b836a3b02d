"""Figures of the chapter on the learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from measured_transformer.viewer.style import COLOURS, look, theme, themed
from numpy import ndarray
from xarray import DataArray, Dataset

from measured_book.evidence.functions import best_rate
from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_book.rooms.learning_rate.measure import (
    DESCENTS,
    GUESS,
    RATES,
    hyperbola,
)
from measured_book.rooms.learning_rate.reading import best_rates, log_steps

Array = Float[ndarray, "..."]
Point = tuple[float | int, float | int]
FACTOR_CONCEPTS = {"rate": "attention", "depth": "residual", "heads": "norm", "width": "ffn"}
"""The colour of each hyper-parameter."""
OPTIMISER_CONCEPTS = ("attention", "residual", "ffn")


@themed
def plot_descents(paths: Mapping[str, Array], reach: float = 1.25) -> Figure:
    """Draw steps of gradient descent on a parabola, a panel for each rate.

    Args:
        paths: name of the panel -> the positions of the weight, the start first; the loss is half their square.
        reach: how far to each side of the bottom is drawn.
    """
    figure, axes = subplots(2, 2, height=2.5, sharex=True, sharey=True)
    across = np.linspace(-reach, reach, 200)
    for each, (name, path) in zip(axes.flat, paths.items(), strict=True):
        each.plot(across, across**2 / 2, color=theme().faint, linewidth=3)
        style = look("attention")
        each.plot(path, np.square(path) / 2, **{**style, "linestyle": "-"}, linewidth=1.2)
        each.plot(path[0], path[0] ** 2 / 2, marker="o", color=theme().ink, markersize=9)
        each.set_xlim(-reach, reach)
        each.set_ylim(-0.03, reach**2 / 2)
        each.set_title(name, loc="right", fontsize=11)
    for each in axes[-1]:
        each.set_xlabel("weight")
    for each in axes[:, 0]:
        each.set_ylabel("loss")
    panel_letters(axes.flat)
    return figure


@themed
def plot_two_directions(paths: Mapping[str, Array]) -> Figure:
    """Draw the loss over the steps in a valley that is steep one way and flat the other.

    Args:
        paths: name of the rate -> the loss at each step.
    """
    figure, axes = subplots(height=3.4)
    for (name, losses), concept in zip(paths.items(), COLOURS, strict=False):
        axes.plot(np.arange(losses.size), losses, **look(concept), markevery=5, label=name)
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    legend_above(axes, columns=3)
    return figure


@themed
def plot_factor_shares(searches: Dataset) -> Figure:
    """Draw the share of each factor in the variance of the loss, a dot for each search, a panel for each range.

    Args:
        searches: the result of this name.
    """
    titles = {"wide": "rates over three powers of ten", "narrow": "rates over one, around the best"}
    figure, axes = subplots(len(titles), 1, height=2.3, sharex=True)
    for each, (space, title) in zip(axes, titles.items(), strict=True):
        here = searches.share.sel(space=space)
        shares = {factor: here.sel(factor=factor).values for factor in FACTOR_CONCEPTS}
        seed_strip(each, shares, label="", concepts=FACTOR_CONCEPTS, reference=0.0)
        each.set_title(title, loc="right", fontsize=11)
    axes[-1].set_xlabel("share of the variance of the loss")
    panel_letters(axes)
    return figure


@themed
def plot_after_a_jump(sizes: Mapping[str, Mapping[str, Array]], before: int) -> Figure:
    """Draw the size of Adam's steps around a change of the gradient, a panel for each change.

    Args:
        sizes: what changes -> name of the setting -> steps in units of the rate.
        before: number of steps before the change.
    """
    figure, axes = subplots(len(sizes), 1, height=2.6, sharex=True)
    for each, (name, arms) in zip(axes, sizes.items(), strict=True):
        for (label, steps), concept in zip(arms.items(), OPTIMISER_CONCEPTS, strict=False):
            across = np.arange(steps.size) - before
            style = {**look(concept), "marker": ""}
            each.plot(across, steps, **style, label=label)
        each.axhline(1, color=theme().ink, linewidth=1)
        each.set_ylabel(f"step / rate\n({name})")
    axes[-1].set_xlabel("steps since the gradient changed")
    legend_above(axes[0], columns=2)
    panel_letters(axes)
    return figure


@themed
def plot_curve(curve: Dataset, *, frequencies: float) -> Figure:
    """Draw the loss after training against the learning rate, every seed.

    Args:
        curve: the result of this name.
        frequencies: loss of a predictor that knows how frequent each byte is.
    """
    figure, axes = subplots(height=3.6)
    losses = curve.loss.transpose("seed", "rate").values
    seed_lines(axes, curve.rate.values, losses, concept="attention", label="", marker_every=1)
    axes.set_xscale("log")
    axes.set_ylim(0.9 * float(losses.min()), 1.1 * GUESS)
    for name, level in (("uniform guess", GUESS), ("byte frequencies", frequencies)):
        axes.axhline(level, color=theme().ink, linestyle="--", linewidth=1)
        _say(axes, name, (3e-3, level), (0, 3), "center")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss on held-out text (nats)")
    return figure


EDGE_CONCEPTS = ("residual", "ffn", "attention")


@themed
def plot_edge(descents: Dataset) -> Figure:
    """Draw the largest curvature along gradient descent at each rate, and two over that rate as a line.

    Args:
        descents: the result of this name.
    """
    figure, axes = subplots(height=4.2)
    for rate, concept in zip(DESCENTS, EDGE_CONCEPTS, strict=True):
        rows = descents.curvature.sel(rate=rate).transpose("seed", "step").values
        seed_lines(axes, descents.step.values, rows, concept=concept, label="", marker_every=3)
        colour = look(concept)["color"]
        axes.axhline(2 / rate, color=colour, linestyle="--", linewidth=1.2)
        _say(axes, f"2 / {rate:g}", (400, 2 / rate), (6, 0), "left", colour, "center")
    axes.set_yscale("log")
    axes.set_xlim(0, 400)
    axes.set_xlabel("step")
    axes.set_ylabel("largest curvature of the loss")
    _numbers(axes.yaxis, (3, 5, 10, 20, 40, 80))
    return figure


@themed
def plot_rivals(settings: Dataset, margin: float) -> Figure:
    """Draw what separates the report's setting of Adam from its rivals, one mark for each seed.

    Args:
        settings: the result of this name.
        margin: what counts as equal.
    """
    names = {
        "default": "0.999, 1e-8",
        "AdamW": "AdamW",
        "lower rate": "an eighth\nof the rate",
    }
    loss = settings.loss
    apart = {
        name: (loss.sel(arm=arm) - loss.sel(arm="report")).values for arm, name in names.items()
    }
    figure, axes = subplots(height=2.5)
    axes.axvspan(-margin, margin, color=theme().faint, alpha=0.6)
    concepts = dict(zip(apart, OPTIMISER_CONCEPTS, strict=True))
    seed_strip(axes, apart, label="", concepts=concepts, reference=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("loss above that of the report's setting (nats)")
    return figure


@themed
def plot_clipping(clipping: Dataset) -> Figure:
    """Draw the loss against the rate with and without clipping, a panel for each optimiser.

    Args:
        clipping: the result of this name.
    """
    figure, axes = subplots(1, 2, height=3.2, sharey=True)
    titles = {"SGD": "(a) gradient descent", "Adam": "(b) Adam"}
    for each, (kind, title) in zip(axes, titles.items(), strict=True):
        for clip, concept in (("none", "attention"), ("clipped", "residual")):
            rows = clipping.loss.sel(kind=kind, clip=clip).transpose("seed", "rate").values
            label = "clipped" if clip == "clipped" else "not clipped"
            seed_lines(
                each, np.array(RATES[kind]), rows, concept=concept, label=label, marker_every=1
            )
        each.set_xscale("log")
        _numbers(each.xaxis, RATES[kind][::2])
        each.set_title(title, loc="left")
        each.set_xlabel("learning rate")
    axes[0].set_ylabel("loss on held-out text (nats)")
    axes[0].set_ylim(2.2, 5.7)
    axes[0].legend(loc="upper left", fontsize=10)
    return figure


@themed
def plot_batches(batches: Dataset) -> Figure:
    """Draw (a) steps against examples to one loss, with the hyperbola, and (b) the best rate by batch size.

    Args:
        batches: the result of this name.
    """
    figure, (left, right) = subplots(1, 2, height=3.5)
    sizes = batches.batch.values.astype(float)
    steps = np.exp(log_steps(batches).values)
    _marks(left, sizes * steps, steps, "residual")
    least, critical, _ = hyperbola(sizes.tolist(), np.exp(np.log(steps).mean(0)).tolist())
    over = np.geomspace(2.5, 512, 200)
    drawn = least * (1 + critical / over)
    left.plot(over * drawn, drawn, color=theme().ink, linewidth=1.4, zorder=1)
    for size, at in zip(sizes, np.exp(np.log(steps).mean(0)), strict=True):
        offset, side = ((-9, 5), "right") if size < 64 else ((0, 10), "center")
        _say(left, f"{size:.0f}", (size * at, at), offset, side)
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("examples to the loss")
    left.set_ylabel("steps to the loss")
    _numbers(left.xaxis, (1000, 2000, 4000, 8000))
    _numbers(left.yaxis, (30, 50, 100, 200, 400))
    left.set_title("(a) batch size by each mark", loc="left", fontsize=11)
    rates = best_rates(batches).transpose("seed", "batch").values
    _marks(right, np.broadcast_to(sizes, rates.shape), rates, "ffn")
    middle = float(np.exp(np.log(rates[:, 1]).mean()))
    for power, name, style in ((0.5, "root", "-"), (1.0, "linear", ":")):
        line = middle * (sizes / sizes[1]) ** power
        right.plot(sizes, line, color=theme().ink, linewidth=1.2, linestyle=style, zorder=1)
        if power == 0.5:
            _say(right, name, (sizes[3], line[3]), (0, 5), "right")
        else:
            _say(right, name, (sizes[2], line[2]), (-8, 0), "right", None, "center")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_ylim(0.5 * float(rates.min()), 4 * float(rates.max()))
    right.set_xlabel("batch size")
    right.set_ylabel("best learning rate")
    _numbers(right.xaxis, sizes.tolist())
    _numbers(right.yaxis, (0.005, 0.01, 0.02, 0.05))
    right.set_title("(b) the rate it wants", loc="left", fontsize=11)
    return figure


def _marks(axes: Axes, across: Array, values: Array, concept: str) -> None:
    """Draw a small mark for every seed at its own positions on both axes, and a large one for their mean.

    Means are geometric, as both axes are logarithmic.

    Args:
        axes: where to draw.
        across: shape (seed, point).
        values: shape (seed, point).
        concept: key of the palette.
    """
    style = look(concept)
    colour, marker = style["color"], style["marker"]
    axes.plot(across.ravel(), values.ravel(), "o", color=colour, alpha=0.45, markersize=4, mew=0)
    middle = [np.exp(np.log(each).mean(0)) for each in (across, values)]
    axes.plot(*middle, linestyle="", marker=marker, color=colour, mec=theme().ink, markersize=8)


@themed
def plot_decay(decays: Dataset) -> Figure:
    """Draw the share of their length that weights keep, by the size of their gradients.

    Args:
        decays: the result of this name.
    """
    figure, axes = subplots(height=3.3)
    for kind, concept in (("AdamW", "residual"), ("L2 in Adam", "attention")):
        rows = decays.kept.sel(kind=kind).transpose("seed", "tenth").values
        seed_lines(axes, decays.tenth.values, rows, concept=concept, label="", marker_every=1)
        at, below = (8, kind == "AdamW")
        place = (at, float(rows.mean(0)[at - 1]))
        colour = look(concept)["color"]
        _say(axes, kind, place, (0, -12 if below else 12), "center", colour, "center")
    axes.set_xticks(decays.tenth.values)
    axes.set_ylim(0.5, 1.0)
    axes.set_xlabel("tenth of the weights, from the smallest gradients to the largest")
    axes.set_ylabel("length relative to no decay")
    return figure


@themed
def plot_muon(muon: Dataset) -> Figure:
    """Draw (a) the loss of Adam and Muon against the rate and (b) the difference at their best rates.

    Args:
        muon: the result of this name.
    """
    figure, (left, right) = subplots(1, 2, height=3.2, gridspec_kw={"width_ratios": (3, 2)})
    for name, concept in (("Adam", "attention"), ("Muon", "ffn")):
        rows = muon.loss.sel(optimiser=name).transpose("seed", "rate").values
        seed_lines(left, muon.rate.values, rows, concept=concept, label="", marker_every=1)
        place = (float(muon.rate[-1]), float(rows.mean(0)[-1]))
        _say(left, name, place, (-4, 8), "right", look(concept)["color"])
    left.set_xscale("log")
    _numbers(left.xaxis, muon.rate.values.tolist()[::2])
    left.set_xlabel("learning rate")
    left.set_ylabel("loss on held-out text (nats)")
    left.set_title("(a)", loc="left")
    apart = _at_best(muon, "Muon") - _at_best(muon, "Adam")
    seed_strip(
        right, {"": apart}, label="Muon minus Adam (nats)", concepts={"": "ffn"}, reference=0.0
    )
    right.xaxis.set_major_locator(MaxNLocator(2))
    right.set_title("(b)", loc="left")
    return figure


def _at_best(muon: Dataset, optimiser: str) -> Array:
    found: DataArray = best_rate(muon.loss.sel(optimiser=optimiser))
    return np.asarray(found.values)


def _say(
    axes: Axes,
    text: str,
    point: Point,
    offset: Point,
    side: str,
    colour: str | None = None,
    vertical: str = "bottom",
) -> None:
    """Write beside a point; the offset is in points of print."""
    axes.annotate(
        text,
        point,
        xytext=offset,
        textcoords="offset points",
        ha=side,
        va=vertical,
        color=colour or theme().ink,
        fontsize=10,
        annotation_clip=False,
    )


def _numbers(axis: Axis, at: Sequence[float | int]) -> None:
    """Ticks of a logarithmic axis, written as plain numbers."""
    axis.set_major_locator(FixedLocator(list(at)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
