"""Figures of *How long is long enough?*: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure
from measured_transformer.viewer.style import look, themed
from xarray import DataArray, Dataset

from measured_book.figures.kit import (
    Arms,
    curves,
    legend_over,
    level,
    panels,
    plain_ticks,
    strips,
)
from measured_book.figures.plots import mean_and_bar

Rungs = Mapping[int, Sequence[Dataset]]
"""Tokens per weight -> the results of that length, each of which has some schedules."""

ARMS: Arms = {
    "constant": ("attention", "constant"),
    "averaged": ("residual", "constant, averaged"),
    "linear": ("alibi", "linear to zero"),
    "cosine": ("learned", "cosine to zero"),
    "cosine to a tenth": ("none", "cosine to a tenth"),
    "cooldown": ("norm", "cooldown"),
    "root cooldown": ("ffn", "cooldown, root"),
}
"""What a schedule is drawn as and called, the same in all figures."""
SHOWN = ("constant", "linear", "cooldown")
"""Schedules whose loss on the way is drawn."""
BESIDE = 1.02
"""The factor by which schedules stand beside one another on an axis of lengths."""
FIRST = 5
"""The first part of a run whose loss is drawn: before it all fall alike, and steeply."""


@themed
def plot_falls(rungs: Rungs) -> Figure:
    """Draw the loss on the way of some schedules, a panel for each length."""
    titles = tuple(f"{tokens} per weight" for tokens in rungs)
    figure, found = panels(1, len(rungs), height=2.9, titles=titles, x="share of the run")
    found[0].set_ylabel("loss, nats per byte")
    for panel, rung in zip(found, rungs.values(), strict=True):
        fall = _joined(rung, "fall")
        shares = fall["part"].values / fall.sizes["part"]
        later = fall.isel(part=slice(FIRST, None))
        curves(panel, later, "part", _there(fall, SHOWN), over="schedule", x=shares[FIRST:])
    legend_over(figure, found[0])
    return figure


@themed
def plot_race(rungs: Rungs) -> Figure:
    """Draw the final loss of the schedules, a dot for each seed and a panel for each length."""
    most = max(len(_there(_joined(rung, "loss"))) for rung in rungs.values())
    height = 0.7 + 0.27 * most
    figure, found = panels(len(rungs), 1, height=height, titles=_titles(rungs))
    for panel, rung in zip(found, rungs.values(), strict=True):
        label, losses = "loss on held-out text, nats per byte", _joined(rung, "loss")
        strips(panel, losses, _there(losses), over="schedule", label=label)
    return figure


@themed
def plot_gains(rungs: Rungs) -> Figure:
    """Draw how far each schedule ends below the constant rate, against the length: means with intervals."""
    words = {"x": "tokens per weight", "y": "nats below the constant rate"}
    figure, (panel,) = panels(1, 1, height=3.4, **words)
    panel.set_xscale("log")
    plain_ticks(panel.xaxis, list(rungs))
    losses = {tokens: _joined(rung, "loss") for tokens, rung in rungs.items()}
    for place, (name, (concept, label)) in enumerate(ARMS.items()):
        if name == "constant":
            continue
        aside = BESIDE ** (place - len(ARMS) / 2)
        gains = {
            tokens: loss.sel(schedule="constant") - loss.sel(schedule=name)
            for tokens, loss in losses.items()
            if name in loss["schedule"].values
        }
        if not gains:
            continue
        found = np.array([mean_and_bar(gain.values) for gain in gains.values()])
        style = look(concept)
        across = [aside * tokens for tokens in gains]
        panel.plot(across, found[:, 0], **style, label=label)
        panel.vlines(across, found[:, 1], found[:, 2], color=style["color"])
    level(panel, 0.0)
    legend_over(figure, panel)
    return figure


def _titles(rungs: Rungs) -> tuple[str, ...]:
    return tuple(f"{tokens} tokens per weight" for tokens in rungs)


def _there(values: DataArray, names: Sequence[str] = tuple(ARMS)) -> Arms:
    """Those schedules that were measured at a length, as they are drawn."""
    return {name: ARMS[name] for name in names if name in values["schedule"].values}


def _joined(rung: Sequence[Dataset], name: str) -> DataArray:
    """A variable of all schedules of one length."""
    found: DataArray = xarray.concat([one[name] for one in rung], dim="schedule")
    return found
