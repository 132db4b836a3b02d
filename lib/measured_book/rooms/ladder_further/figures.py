"""Figure of passes over the data on the ladder: results in, drawing out."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, panels

PASSES: Arms = {
    "1": ("residual", "new windows"),
    "4": ("norm", "4 passes"),
    "16": ("attention", "16 passes"),
}
DROPPED: Arms = {"16": ("ffn", "16 passes, dropout")}


@themed
def plot_passes(repeated: Dataset, dropped: Dataset) -> Figure:
    """Draw the final loss over weight decay, by the number of passes over the data.

    Args:
        repeated, dropped: the results of these names.
    """
    figure, (axes,) = panels(height=3.2, x="weight decay", y="loss, nats per byte")
    places = np.arange(repeated.sizes["decay"])
    for result, arms in ((repeated, PASSES), (dropped, DROPPED)):
        named = result.loss.assign_coords(passes=[str(each) for each in result.passes.values])
        curves(axes, named, "decay", arms, over="passes", x=places)
    axes.set_xticks(places, [f"{decay:g}" for decay in repeated.decay.values])
    axes.legend(ncols=2, fontsize=10)
    return figure
