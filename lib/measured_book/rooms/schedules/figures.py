"""Figures about schedules of the learning rate: results in, drawings out."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, level, panels, strips
from measured_book.figures.plots import legend_above
from measured_book.rooms.schedules.measure import (
    FAILED,
    FROM,
    HELD_OUT,
    LENGTH,
    LENGTHS,
    RATES,
    SHAPES,
    text_schedule,
    valley_height,
    valley_path,
)
from measured_book.rooms.schedules.reading import sums_of, too_high

ARMS: Arms = {
    "constant": ("attention", "constant"),
    "root": ("residual", "warm-up and root"),
    "exponential": ("ffn", "exponential"),
    "cooldown": ("norm", "cooldown"),
    "linear": ("alibi", "linear to zero"),
    "cosine": ("learned", "cosine to zero"),
    "cosine to a tenth": ("none", "cosine to a tenth"),
    "long cooldown": ("rotary", "cooldown, half"),
    "stairs": ("random", "stairs"),
}
"""What a schedule is drawn as and called, the same in all figures."""


@themed
def plot_lengths(lengths: Dataset) -> Figure:
    """Draw rates and losses of one constant run, of cooldowns that branch off it, and of cosines."""
    figure, (above, below) = panels(2, 1, height=2.5, x="step", sharex=True, height_ratios=(1, 2.2))
    shown = {"cosine": LENGTHS, "cooldown": LENGTHS, "constant": LENGTHS[-1:]}
    for kind, ends in shown.items():
        for steps in ends:
            here = lengths.sel(kind=kind, steps=steps)
            made, peak = text_schedule(kind, steps), float(here["rate"][0])
            rates = [1000 * peak * made(step) for step in range(steps)]
            above.plot(range(steps), rates, color=COLOURS[ARMS[kind][0]], linewidth=1.5)
            branch = steps - steps // 5 - 30 if kind == "cooldown" else 0
            curve = here.curve.where(lengths["at"] >= max(90, branch))
            curves(below, curve, "at", {kind: ARMS[kind]}, names="", solid=True)
    above.set_ylabel("rate, $10^{-3}$")
    below.set_ylabel("loss, nats per byte")
    below.set_xlim(0, LENGTH + 8)
    words = ("one run at a constant rate", "a cosine for each length", "its cooldowns")
    for place, (kind, text) in enumerate(
        zip(("constant", "cosine", "cooldown"), words, strict=True)
    ):
        at, how = (280, 0.97 - 0.08 * place), below.get_xaxis_transform()
        below.text(*at, text, color=COLOURS[ARMS[kind][0]], transform=how, va="top")
    return figure


@themed
def plot_valley() -> Figure:
    """Draw the valley of the hand example with three walkers, and how high each of them stands."""
    figure, (map_, height) = panels(2, 1, height=2.6)
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
    return figure


@themed
def plot_plane(plane: Dataset) -> Figure:
    """Draw the loss on a plane through three states of a language model, a panel for each of two seeds."""
    words = {"x": "along the floor (length in weight space)", "y": "across"}
    figure, found = panels(plane.sizes["seed"], 1, height=2.9, sharex=True, **words)
    for panel, seed in zip(found, plane.seed.values, strict=True):
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
    return figure


@themed
def plot_lines(valley: Dataset) -> Figure:
    """Draw the loss along three straight lines between states of the language model, every seed."""
    names = {
        "walls": ("from wall to wall", ("step 450", "step 480"), "attention"),
        "cooling": ("from floor to wall", ("cooled", "not cooled"), "norm"),
        "floors": ("along the floor", ("cooled\nby 240", "cooled\nby 480"), "residual"),
    }
    figure, found = panels(1, 3, height=2.9, y="loss, nats per byte", sharey=True)
    ends = [valley.share.values.tolist().index(end) for end in (0.0, 1.0)]
    for axes, (line, (title, ticks, concept)) in zip(found, names.items(), strict=True):
        curves(axes, valley.loss, "share", {line: (concept, "")}, over="line", solid=True)
        axes.get_lines()[-1].set(markevery=ends, markeredgecolor=theme().ink)
        axes.set_xticks((0, 1), ticks)
        axes.set_xlabel(title)
    return figure


@themed
def plot_budget(race: Dataset) -> Figure:
    """Draw the final loss of every run over the sum of its rates; crosses where the peak was too high."""
    figure, (axes,) = panels(height=4.4, x="sum of the rates over the run", y="final loss, nats")
    high, named = too_high(race), {""}
    for row, sums in zip(SHAPES, sums_of(), strict=True):
        concept, name = ARMS[row.partition(",")[0]]
        for rate, total in zip(RATES, sums, strict=True):
            losses = np.minimum(race.loss.sel(shape=row, rate=rate).values, 2.4)
            mark = "x" if rate in high else "o"
            at, colour = np.full(losses.size, total), COLOURS[concept]
            label = "_nolegend_" if name in named else name
            axes.plot(at, losses, mark, color=colour, alpha=0.6, markersize=4.5, label=label)
            named.add(name)
    level(axes, FAILED, "half of a guess")
    axes.set_xscale("log")
    axes.set_ylim(0.3, 2.45)
    legend_above(axes, columns=2)
    return figure


@themed
def plot_race(final: Dataset, text: Dataset) -> Figure:
    """Draw the final loss of each schedule at what suits it best, every seed, on both tasks."""
    figure, found = panels(2, 1, height=2.6)
    tasks = {
        "final loss on map-and-reverse, nats": final,
        "final loss on text, nats per byte": text,
    }
    for axes, (label, result) in zip(found, tasks.items(), strict=True):
        arms = {name: ARMS[name] for name in result.schedule.values.tolist()}
        strips(axes, result.loss, arms, over="schedule", label=label, lowest_first=True)
    return figure


@themed
def plot_law(annealing: Dataset) -> Figure:
    """Draw measured and predicted losses of the schedules that the law was not fitted to, a panel for each."""
    titles, words = [ARMS[one][1] for one in HELD_OUT], {"x": "step", "y": "loss, nats per byte"}
    figure, found = panels(2, 2, height=2.4, titles=titles, sharex=True, sharey=True, **words)
    late = annealing.isel(at=slice(FROM, None))
    for axes, schedule in zip(found, HELD_OUT, strict=True):
        here = late.sel(schedule=schedule)
        curves(axes, here.loss, "at", {"": (ARMS[schedule][0], "measured")}, solid=True)
        for law, style, name in (("law", "-", "two sums"), ("sum_alone", ":", "one sum alone")):
            mean = here[law].mean("seed").values
            axes.plot(here["at"].values, mean, style, color=theme().ink, linewidth=1.4, label=name)
    found[0].legend(loc="lower left", fontsize=8, borderaxespad=0.1)
    return figure
