"""Figures of *How long is long enough?*: results in, drawings out."""

from __future__ import annotations

import xarray
from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import DataArray, Dataset

from measured_book.figures.kit import Arms, curves, panels, strips
from measured_book.rooms.ladder.measure import LONG, SHORT

ARMS: Arms = {
    "constant": ("attention", "constant"),
    "linear": ("alibi", "linear to zero"),
    "cosine": ("learned", "cosine to zero"),
    "cosine to a tenth": ("none", "cosine to a tenth"),
    "cooldown": ("norm", "cooldown"),
    "root cooldown": ("rotary", "cooldown, root"),
}
"""What a schedule is drawn as and called, the same in all figures."""
TITLES = tuple(f"{tokens} tokens a weight" for tokens in (SHORT, LONG))


@themed
def plot_falls(
    falling_5: Dataset, held_5: Dataset, falling_20: Dataset, held_20: Dataset
) -> Figure:
    """Draw the loss on the way of three schedules, at both lengths.

    Args:
        falling_5, held_5, falling_20, held_20: the results of these names.
    """
    figure, found = panels(
        1, 2, height=2.9, titles=TITLES, x="share of the run", y="loss, nats per byte"
    )
    names = ("constant", "linear", "cooldown")
    for panel, pair in zip(found, ((falling_5, held_5), (falling_20, held_20)), strict=True):
        fall = _of_both("fall", *pair).sel(schedule=list(names))
        shares = fall["part"].values / fall.sizes["part"]
        later = fall.where(fall["part"] > 2, drop=True)
        arms = {name: ARMS[name] for name in names}
        curves(panel, later, "part", arms, over="schedule", names="legend", x=shares[2:])
    return figure


@themed
def plot_race(falling_5: Dataset, held_5: Dataset, falling_20: Dataset, held_20: Dataset) -> Figure:
    """Draw the final loss of six schedules at both lengths, a dot for each seed.

    Args:
        falling_5, held_5, falling_20, held_20: the results of these names.
    """
    figure, found = panels(1, 2, height=2.9, titles=TITLES)
    for panel, pair in zip(found, ((falling_5, held_5), (falling_20, held_20)), strict=True):
        label = "loss on held-out text, nats per byte"
        strips(panel, _of_both("loss", *pair), ARMS, over="schedule", label=label)
    return figure


def _of_both(name: str, falling: Dataset, held: Dataset) -> DataArray:
    """A variable of all six schedules of one length."""
    return xarray.concat([falling[name], held[name]], dim="schedule")
