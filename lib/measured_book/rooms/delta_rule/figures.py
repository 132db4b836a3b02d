"""Figure of what layers with the delta rule recall: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, panels, plain_ticks

ONE: Arms = {
    "softmax": ("residual", "softmax"),
    "linear": ("ffn", "linear"),
    "delta": ("attention", "delta rule"),
}
TWO: Arms = {
    "softmax twice": ("residual", "softmax"),
    "delta twice": ("attention", "delta rule"),
    "hybrid": ("norm", "delta rule, then softmax"),
}


@themed
def plot_overwritten(overwritten: Dataset) -> Figure:
    """Draw the accuracy at recalling the newest value over the number of pairs, for one layer and for two.

    Args:
        overwritten: the result of this name.
    """
    figure, axes = panels(
        1, 2, height=2.9, x="pairs in the sequence", titles=("one layer", "two layers"), sharey=True
    )
    for one, arms in zip(axes, (ONE, TWO), strict=True):
        curves(one, overwritten.accuracy, "told", arms, over="arm")
        one.set_xscale("log", base=2)
        plain_ticks(one.xaxis, overwritten.told.values)
    axes[0].set_ylim(0, 1.03)
    axes[0].set_ylabel("accuracy")
    found = {n: h for one in axes for h, n in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found, loc="outside upper center", ncols=4, fontsize=10)
    return figure
