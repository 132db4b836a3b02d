"""Figures of *How long is long enough?*: results in, drawings out."""

from __future__ import annotations

from collections.abc import Sequence

import xarray
from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import DataArray, Dataset

from measured_book.figures.kit import Arms, curves, legend_over, panels, strips
from measured_book.rooms.ladder.measure import LONG, SHORT

ARMS: Arms = {
    "constant": ("attention", "constant"),
    "linear": ("alibi", "linear to zero"),
    "cosine": ("learned", "cosine to zero"),
    "cosine to a tenth": ("none", "cosine to a tenth"),
}
"""What a schedule is drawn as and called, the same in all figures."""
TITLES = tuple(f"{tokens} tokens per weight" for tokens in (SHORT, LONG))


SHOWN = ("constant", "linear")
"""Schedules whose loss on the way is drawn."""


@themed
def plot_falls(short: Sequence[Dataset], long: Sequence[Dataset]) -> Figure:
    """Draw the loss on the way of two schedules, at both lengths.

    Args:
        short, long: the results of a length, each of which has two schedules.
    """
    words = {"x": "share of the run", "y": "loss, nats per byte"}
    figure, found = panels(1, 2, height=2.9, titles=TITLES, **words)
    for panel, rung in zip(found, (short, long), strict=True):
        fall = _joined(rung, "fall")
        shares = fall["part"].values / fall.sizes["part"]
        later = fall.isel(part=slice(2, None))
        arms = {name: ARMS[name] for name in SHOWN}
        curves(panel, later, "part", arms, over="schedule", x=shares[2:])
    legend_over(figure, found[0])
    return figure


@themed
def plot_race(short: Sequence[Dataset], long: Sequence[Dataset]) -> Figure:
    """Draw the final loss of the schedules of both lengths, a dot for each seed.

    Args:
        short, long: as for `plot_falls`.
    """
    figure, found = panels(2, 1, height=1.9, titles=TITLES)
    for panel, rung in zip(found, (short, long), strict=True):
        label, losses = "loss on held-out text, nats per byte", _joined(rung, "loss")
        arms = {name: ARMS[name] for name in ARMS if name in losses["schedule"].values}
        strips(panel, losses, arms, over="schedule", label=label)
    return figure


def _joined(rung: Sequence[Dataset], name: str) -> DataArray:
    """A variable of all schedules of one length."""
    found: DataArray = xarray.concat([one[name] for one in rung], dim="schedule")
    return found
