"""Figure of what models with fewer turning pairs or blocks read beyond their length."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, panels, plain_ticks

ARMS: Arms = {
    "rotary": ("rotary", "rotary throughout"),
    "fast pairs": ("attention", "two fastest pairs"),
    "none": ("none", "no positions"),
    "windows": ("norm", "windows, all rotary"),
    "mix": ("residual", "windows, one block without positions"),
}


@themed
def plot_longer(longer: Dataset) -> Figure:
    """Draw the loss of the last bytes over the length that is read.

    Args:
        longer: the result of this name.
    """
    figure, (axes,) = panels(height=3.2, x="bytes read", y="loss of the last bytes, nats")
    curves(axes, longer.loss, "length", ARMS, over="arm")
    axes.set_xscale("log", base=2)
    plain_ticks(axes.xaxis, longer.length.values)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=10)
    return figure
