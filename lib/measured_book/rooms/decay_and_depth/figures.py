"""Figures of weight decay in three ways, and of learning rates over depth: results in, drawings out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, panels, plain_ticks, strips

WAYS: Arms = {
    "decoupled": ("residual", "decoupled"),
    "coupled": ("attention", "coupled"),
    "independent": ("ffn", "independent"),
}
RULES: Mapping[str, str] = {"standard": "standard", "root": "1/√L", "CompleteP": "CompleteP"}
"""What each rule for the depth is called."""


@themed
def plot_decays(undecayed: Dataset, decays: Dataset, quartered: Dataset) -> Figure:
    """Draw (a) the loss by way and strength of decay, (b) what a quarter of the best peak costs.

    Args:
        undecayed, decays, quartered: the results of these names.
    """
    figure, (left, right) = panels(1, 2, height=3.1, width_ratios=(3, 2))
    none = undecayed.loss.isel(decay=0, drop=True).expand_dims(strength=["none"])
    loss = xarray.concat([none.broadcast_like(decays.way), decays.loss], "strength")
    places = np.arange(loss.sizes["strength"])
    curves(left, loss, "strength", WAYS, over="way", x=places)
    left.set_xticks(places, list(loss.strength.values))
    left.set_xlabel("strength of the decay")
    left.set_ylabel("loss (nats per byte)")
    rise = quartered.loss - decays.loss.sel(strength="middle", way=quartered.way)
    two = {way: WAYS[way] for way in quartered.way.values}
    strips(right, rise, two, over="way", label="change of the loss (nats)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=10)
    return figure


@themed
def plot_depths(depths: Dataset) -> Figure:
    """Draw the loss over the learning rate for each depth, a panel for each rule.

    Args:
        depths: the result of this name.
    """
    figure, axes = panels(
        1, 3, height=3.2, x="learning rate", titles=tuple(RULES.values()), sharey=True
    )
    rates = depths.rate.values
    ends = (COLOURS["residual"], COLOURS["random"], COLOURS["attention"])
    shades = LinearSegmentedColormap.from_list("depths", ends, N=depths.sizes["depth"])
    for panel, rule in zip(axes, RULES, strict=True):
        for place, (depth, marker) in enumerate(zip(depths.depth.values, "vos", strict=True)):
            colour = shades(place)
            rows = depths.loss.sel(rule=rule, depth=depth).transpose("seed", "rate").values
            for row in rows:
                panel.plot(rates, row, color=colour, alpha=0.3, linewidth=0.8)
            mean = rows.mean(0)
            (line,) = panel.plot(rates, mean, color=colour, marker=marker, label=f"{depth} blocks")
            line.set(markersize=4, linewidth=2)
            best = int(mean.argmin())
            (mark,) = panel.plot(rates[best], mean[best], color=colour, marker=marker)
            mark.set(markersize=9, markeredgecolor=theme().ink, zorder=5)
        panel.set_xscale("log", base=2)
        plain_ticks(panel.xaxis, rates[1::2])
    axes[0].set_ylabel("loss (nats per byte)")
    lowest = float(depths.loss.min())
    axes[0].set_ylim(lowest - 0.05, lowest + 0.75)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=10)
    return figure
