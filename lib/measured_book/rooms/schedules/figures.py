"""Figures about schedules of the learning rate: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.plots import (
    legend_above,
    panel_letters,
    seed_strip,
    subplots,
)
from measured_book.rooms.schedules.measure import (
    AT,
    FAILED,
    FROM,
    HELD_OUT,
    LENGTH,
    LENGTHS,
    RATES,
    SCHEDULES,
    SHAPES,
    text_schedule,
    valley_height,
    valley_path,
)
from measured_book.rooms.schedules.reading import sums_of, too_high

CONCEPTS: Mapping[str, str] = {
    "constant": "attention",
    "root": "residual",
    "exponential": "ffn",
    "cooldown": "norm",
    "linear": "alibi",
    "cosine": "learned",
    "cosine to a tenth": "none",
    "long cooldown": "rotary",
    "stairs": "random",
}
"""What a schedule is drawn as, the same in all figures."""
NAMES: Mapping[str, str] = {
    "root": "warm-up and root",
    "linear": "linear to zero",
    "cosine": "cosine to zero",
    "long cooldown": "cooldown, half",
    "cooldown": "cooldown",
}


@themed
def plot_lengths(lengths: Dataset) -> Figure:
    """Draw rates and losses of one constant run, of cooldowns that branch off it, and of cosines."""
    figure, (above, below) = subplots(
        2, 1, height=2.5, sharex=True, height_ratios=(1, 2.2), layout="constrained"
    )
    for steps in LENGTHS:
        across = np.arange(steps)
        for kind in ("cosine", "cooldown", "constant"):
            made = text_schedule(kind, steps)
            peak = float(lengths["rate"].sel(kind=kind, steps=steps)[0])
            values = [1000 * peak * made(step) for step in range(steps)]
            if kind != "constant" or steps == LENGTH:
                above.plot(across, values, color=COLOURS[CONCEPTS[kind]], linewidth=1.5)
            curve = lengths.curve.sel(kind=kind, steps=steps).transpose("seed", "at").values
            seen = ~np.isnan(curve[0]) & (np.asarray(AT) >= 90)
            if kind == "cooldown":
                seen &= np.asarray(AT) >= steps - steps // 5 - 30
            if kind != "constant" or steps == LENGTH:
                _seeds(below, np.asarray(AT, dtype=float)[seen], curve[:, seen], CONCEPTS[kind])
    above.set_ylabel("rate, $10^{-3}$")
    below.set_ylabel("loss, nats per byte")
    below.set_xlabel("step")
    below.set_xlim(0, LENGTH + 8)
    for kind, x, y in (("constant", 280, 0.97), ("cosine", 280, 0.89), ("cooldown", 280, 0.81)):
        words = {"cosine": "a cosine for each length", "cooldown": "its cooldowns"}
        below.text(
            x,
            y,
            words.get(kind, "one run at a constant rate"),
            color=COLOURS[CONCEPTS[kind]],
            transform=below.get_xaxis_transform(),
            va="top",
        )
    panel_letters([above, below])
    return figure


def _seeds(
    axes: Axes, x: Float[np.ndarray, "x"], rows: Float[np.ndarray, "seed x"], concept: str
) -> None:
    """A faint line for every seed, and a strong one for their mean that ends in a dot."""
    colour = COLOURS[concept]
    axes.plot(x, rows.T, color=colour, alpha=0.22, linewidth=0.7)
    axes.plot(x, rows.mean(0), color=colour, linewidth=1.8, zorder=3)
    axes.plot(x[-1], rows.mean(0)[-1], "o", color=colour, markersize=6, zorder=4)


@themed
def plot_valley() -> Figure:
    """Draw the valley of the hand example with three walkers, and how high each of them stands."""
    figure, (map_, height) = subplots(2, 1, height=2.6, layout="constrained")
    x, y = np.meshgrid(np.linspace(-0.12, 2.55, 120), np.linspace(-1.45, 1.45, 80))
    map_.contourf(x, y, valley_height(x, y), levels=14, cmap="cividis", alpha=0.75)
    map_.contour(x, y, valley_height(x, y), levels=14, colors=theme().ink, linewidths=0.3)
    map_.axhline(0, color=theme().ink, linewidth=0.8, linestyle=":")
    map_.grid(visible=False)
    for walker, concept, name in (
        ("fast", "attention", "stride 1"),
        ("slow", "ffn", "stride 0.1"),
        ("cooled", "norm", "stride 1, then cooled"),
    ):
        path = valley_path(walker)
        colour = COLOURS[concept]
        start = 20 if walker == "cooled" else 0
        width = 2.2 if walker == "cooled" else 1.2
        map_.plot(*path[start:].T, color=colour, linewidth=width, marker="o", markersize=2.5)
        map_.plot(*path[-1], "o", color=colour, mec="white", markersize=9, zorder=5)
        losses = valley_height(*path.T)
        height.plot(
            np.arange(start, len(losses)), losses[start:], color=colour, marker="o", markersize=2.5
        )
        height.text(24.4, losses[-1], name, color=colour, va="center")
    map_.set_xlabel("along the river")
    map_.set_ylabel("across")
    height.axvline(20, color=theme().ink, linewidth=0.8, linestyle=":")
    height.set_xlim(0, 36)
    height.set_xticks(range(0, 25, 4))
    height.set_xlabel("step")
    height.set_ylabel("loss")
    panel_letters([map_, height])
    return figure


@themed
def plot_plane(plane: Dataset) -> Figure:
    """Draw the loss on a plane through three states of a language model, a panel for each of two seeds."""
    count = plane.sizes["seed"]
    figure, axes = subplots(count, 1, height=2.9, sharex=True, squeeze=False)
    for panel, seed in zip(axes[:, 0], plane.seed.values, strict=True):
        here = plane.sel(seed=seed)
        loss = here.loss.transpose("across", "along").values
        levels = float(loss.min()) + np.array(
            [0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.1]
        )
        width, length = float(here.width), float(here.length)
        x, y = here.along.values * length, here.across.values * width
        panel.contourf(x, y, loss, levels=levels, cmap="cividis", extend="max", alpha=0.85)
        lines = panel.contour(x, y, loss, levels=levels, colors="black", linewidths=0.4)
        panel.clabel(lines, levels[1:8:2], fmt="%.2f", fontsize=7)
        panel.grid(visible=False)
        spots = {
            str(state): here.place.sel(state=state).values * np.array([length, width])
            for state in here.state.values
        }
        for names, style in ((("early floor", "floor"), "-"), (("floor", "high"), "--")):
            ends = np.array([spots[name] for name in names])
            panel.plot(*ends.T, color="white", linestyle=style, linewidth=1.6)
        for name, text, drop in (
            ("early floor", f"cooled by {LENGTH // 2}", -16),
            ("floor", f"cooled by {LENGTH}", -16),
            ("high", f"not cooled, {LENGTH}", 9),
        ):
            concept = "attention" if name == "high" else "norm"
            panel.plot(*spots[name], "o", color=COLOURS[concept], mec="white", markersize=9)
            panel.annotate(
                text,
                spots[name],
                xytext=(0, drop),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color="black",
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75},
            )
        panel.set_aspect("equal")
        panel.set_ylabel("across")
    axes[-1, 0].set_xlabel("along the floor (length in weight space)")
    panel_letters(axes[:, 0])
    return figure


@themed
def plot_lines(valley: Dataset) -> Figure:
    """Draw the loss along three straight lines between states of the language model, every seed."""
    names = {
        "walls": ("from wall to wall", ("step 450", "step 480"), "attention"),
        "cooling": ("from floor to wall", ("cooled", "not cooled"), "norm"),
        "floors": ("along the floor", ("cooled\nby 240", "cooled\nby 480"), "residual"),
    }
    figure, axes = subplots(1, 3, height=2.9, sharey=True, layout="constrained")
    for panel, (line, (title, ends, concept)) in zip(axes, names.items(), strict=True):
        rows = valley.loss.sel(line=line).transpose("seed", "share").values
        shares = valley.share.values
        panel.plot(shares, rows.T, color=COLOURS[concept], alpha=0.4, linewidth=0.8)
        panel.plot(shares, rows.mean(0), color=COLOURS[concept], linewidth=2.2, zorder=3)
        for at in (0.0, 1.0):
            mean = float(valley.loss.sel(line=line, share=at).mean())
            panel.plot(at, mean, "o", color=COLOURS[concept], mec=theme().ink, zorder=4)
        panel.set_xticks((0, 1), ends)
        panel.set_xlabel(title)
    axes[0].set_ylabel("loss, nats per byte")
    panel_letters(axes)
    return figure


@themed
def plot_budget(race: Dataset) -> Figure:
    """Draw the final loss of every run over the sum of its rates; crosses where the peak was too high."""
    figure, axes = subplots(height=4.4)
    sums, high = sums_of(), too_high(race)
    losses = race.loss.transpose("seed", "shape", "rate").values
    for schedule in SCHEDULES:
        colour = COLOURS[CONCEPTS[schedule]]
        name = NAMES.get(schedule, schedule)
        for row, shape in enumerate(SHAPES):
            if shape.partition(",")[0] != schedule:
                continue
            for column, rate in enumerate(RATES):
                axes.plot(
                    np.full(len(losses), sums[row, column]),
                    np.minimum(losses[:, row, column], 2.4),
                    "x" if rate in high else "o",
                    color=colour,
                    alpha=0.6,
                    markersize=4.5,
                    label=name if column == 0 else "_nolegend_",
                )
                name = "_nolegend_"
    axes.axhline(FAILED, color=theme().ink, linewidth=1, linestyle="--")
    axes.text(
        1, FAILED, "half of a guess ", transform=axes.get_yaxis_transform(), ha="right", va="bottom"
    )
    axes.set_xscale("log")
    axes.set_xlabel("sum of the rates over the run")
    axes.set_ylabel("final loss, nats")
    axes.set_ylim(0.3, 2.45)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_race(final: Dataset, text: Dataset) -> Figure:
    """Draw the final loss of each schedule at what suits it best, every seed, on both tasks."""
    figure, axes = subplots(2, 1, height=2.6, layout="constrained")
    translation = {
        NAMES.get(str(name), str(name)): final.loss.sel(schedule=name).values
        for name in final.schedule.values
    }
    spoken = {
        NAMES.get(str(name), str(name)): text.loss.sel(schedule=name).values
        for name in text.schedule.values
    }
    concepts = {NAMES.get(name, name): concept for name, concept in CONCEPTS.items()}
    for panel, groups, label in (
        (axes[0], translation, "final loss on map-and-reverse, nats"),
        (axes[1], spoken, "final loss on text, nats per byte"),
    ):
        order = sorted(groups, key=lambda name: float(np.mean(groups[name])))
        seed_strip(panel, {name: groups[name] for name in order}, label=label, concepts=concepts)
    panel_letters(axes)
    return figure


@themed
def plot_law(annealing: Dataset) -> Figure:
    """Draw measured and predicted losses of the schedules that the law was not fitted to, a panel for each."""
    figure, axes = subplots(2, 2, height=2.4, sharex=True, sharey=True)
    at = annealing["at"].values[FROM:]
    for letter, panel, schedule in zip("abcd", axes.flat, HELD_OUT, strict=True):
        here = annealing.isel(at=slice(FROM, None)).sel(schedule=schedule)
        colour = COLOURS[CONCEPTS[schedule]]
        rows = here.loss.transpose("seed", "at").values
        panel.plot(at, rows.T, color=colour, alpha=0.3, linewidth=0.7)
        panel.plot(at, rows.mean(0), color=colour, linewidth=2.4, label="measured")
        for law, style, name in (("law", "-", "two sums"), ("sum_alone", ":", "one sum alone")):
            mean = here[law].mean("seed").values
            panel.plot(at, mean, color=theme().ink, linestyle=style, linewidth=1.4, label=name)
        panel.set_title(
            f"({letter}) {NAMES.get(schedule, schedule)}",
            loc="left",
            fontweight="bold",
            fontsize=11,
        )
    axes[0, 0].legend(loc="lower left", fontsize=8, borderaxespad=0.1)
    for panel in axes[1]:
        panel.set_xlabel("step")
    for panel in axes[:, 0]:
        panel.set_ylabel("loss, nats per byte")
    return figure
