"""Figure of what heads of a small language model rest on: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, panels, strips

WAYS: Arms = {
    "softmax": ("residual", "softmax alone"),
    "sink": ("norm", "learned sinks"),
    "gate": ("attention", "output gates"),
    "clip": ("ffn", "QK-clip"),
}


@themed
def plot_ways(ways: Dataset) -> Figure:
    """Draw the largest weight that a head gives the first token, and the loss, by arm.

    Args:
        ways: the result of this name.
    """
    figure, axes = panels(1, 2, height=2.4)
    strips(
        axes[0],
        ways.most,
        WAYS,
        over="arm",
        label="weight of the start byte",
        reference=0.3,
    )
    strips(axes[1], ways.loss, WAYS, over="arm", label="loss, nats per byte")
    axes[1].set_yticklabels([])
    return figure
