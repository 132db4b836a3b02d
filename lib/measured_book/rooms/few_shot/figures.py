"""Figure of the curves over the number of examples: results in, drawing out."""

from __future__ import annotations

from matplotlib.figure import Figure
from measured_transformer.viewer.style import themed
from xarray import Dataset

from measured_book.figures.kit import Arms, curves, legend_over, panels, plain_ticks

ANSWERS: Arms = {
    "right": ("attention", "right answers"),
    "random": ("alibi", "random answers of the task"),
    "foreign": ("rotary", "answers of another task"),
}
BARE: Arms = {"bare": ("none", "lines of no task")}
GROUPS = {
    "few labels": ["kind", "sentiment", "continent"],
    "answers of their own": ["opposite", "past"],
}


@themed
def plot_curves(curve: Dataset, bare: Dataset) -> Figure:
    """Draw how often the right answer is ahead, and its nats, by the number and the kind of examples.

    Args:
        curve, bare: the results of these names.
    """
    cells = [(value, name) for value in ("ahead", "loss") for name in GROUPS]
    titles = tuple(name for _, name in cells)
    figure, axes = panels(2, 2, height=2.4, x="examples", titles=titles, sharex=True, sharey="row")
    for one, (value, name) in zip(axes, cells, strict=True):
        answers = curve[value].sel(task=GROUPS[name]).mean("task")
        curves(one, answers, "count", ANSWERS, over="examples", marker_every=4)
        lines = bare[value].sel(task=GROUPS[name]).mean("task").expand_dims(of=["bare"])
        curves(one, lines, "lines", BARE, over="of", marker_every=1)
        plain_ticks(one.xaxis, [0, 2, 4, 8, 16])
    axes[0].set_ylabel("share ahead")
    axes[2].set_ylabel("nats")
    axes[0].set_ylim(0, 1.03)
    legend_over(figure, axes[0], columns=2, size=9)
    return figure
