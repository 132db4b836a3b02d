"""Figure of models with several residual streams: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, panels, strips

ARMS: Arms = {
    "one": ("residual", "one stream"),
    "wider": ("none", "one stream, wider networks"),
    "hyper": ("attention", "hyper-connections"),
    "constrained": ("norm", "mHC"),
}


@themed
def plot_streams(streams: Dataset) -> Figure:
    """Draw (a) the loss of every arm, (b) the largest sum of a row of the product of mixtures; every seed.

    Args:
        streams: the result of this name.
    """
    figure, axes = panels(1, 2, height=2.4)
    strips(axes[0], streams.loss, ARMS, over="arm", label="loss, nats per byte")
    strips(axes[1], streams.forward, ARMS, over="arm", label="largest gain", reference=1.0)
    axes[1].set_yticklabels([])
    return figure
