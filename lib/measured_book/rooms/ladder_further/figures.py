"""Figure of batches on the ladder: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, legend_over, panels, plain_ticks

AVERAGES: Arms = {
    "kept": ("residual", "second average kept by steps"),
    "scaled": ("attention", "kept by tokens"),
}


@themed
def plot_batches(batches: Dataset) -> Figure:
    """Draw the final loss over the size of the batch, from the same number of tokens.

    Args:
        batches: the result of this name.
    """
    figure, (axes,) = panels(height=2.8, x="windows of a batch", y="loss, nats per byte")
    curves(axes, batches.loss, "batch", AVERAGES, over="average")
    axes.set_xscale("log", base=2)
    plain_ticks(axes.xaxis, batches.batch.values)
    legend_over(figure, axes)
    return figure
