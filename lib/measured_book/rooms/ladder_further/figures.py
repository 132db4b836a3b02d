"""Figures of batches and of repeated data on the ladder: results in, drawing out."""

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


PASSES: Arms = {
    1: ("residual", "all windows new"),
    4: ("ffn", "each four times"),
    16: ("attention", "each sixteen times"),
}
WITH_DROPOUT: Arms = {16: ("norm", "sixteen times, with dropout")}


@themed
def plot_repeated(repeated: Dataset, dropped: Dataset) -> Figure:
    """Draw the final loss over the weight decay, by how often each window of text comes.

    Args:
        repeated: the result of this name.
        dropped: the result of this name.
    """
    figure, (axes,) = panels(height=3.0, x="weight decay", y="loss, nats per byte")
    places = range(repeated.sizes["decay"])
    curves(axes, repeated.loss, "decay", PASSES, over="passes", x=places)
    curves(axes, dropped.loss, "decay", WITH_DROPOUT, over="passes", x=places)
    axes.set_xticks(list(places), [f"{decay:g}" for decay in repeated.decay.values])
    legend_over(figure, axes, columns=2)
    return figure
