"""Figure of estimated patching: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, theme, themed
from xarray import Dataset

from measured_book.figures.kit import Arms, panels

POINTS: Arms = {1: ("attention", "gradient at one point"), 5: ("ffn", "mean over five points")}
MARKS = {1: "o", 5: "x"}


@themed
def plot_estimated(estimated: Dataset) -> Figure:
    """Draw what the gradient says of each patch, against what the patch does; a mark a block and draw.

    Args:
        estimated: the result of this name.
    """
    titles = ("one head", "network", "stream")
    figure, axes = panels(1, 3, height=2.9, titles=titles, x="effect of the patch")
    for one, part in zip(axes, estimated.part.values, strict=True):
        right = estimated.patched.sel(part=part).values.ravel()
        for points, (concept, name) in POINTS.items():
            guessed = estimated.estimated.sel(part=part, points=points).values.ravel()
            one.plot(
                right,
                guessed,
                MARKS[points],
                color=COLOURS[concept],
                alpha=0.5,
                markersize=4,
                label=name,
            )
        ends = [min(right), max(right)]
        one.plot(ends, ends, color=theme().ink, linewidth=1, linestyle="--")
    axes[0].set_ylabel("estimate")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=10)
    return figure
