"""Every figure of the chapter on distance draws what it is given."""

import numpy as np
from matplotlib.patches import FancyArrowPatch
from measured_transformer.chapters.far_apart import figures as far_apart

RNG = np.random.default_rng(0)


def shown(axes, x, rows):
    lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
    return all(
        any(len(y) == len(x) and np.allclose(y, row) for y in lines)
        for row in (*rows, rows.mean(0))
    )


def test_paths_have_one_arrow_above_and_a_chain_below():
    drawn = far_apart.plot_paths(["k", "v", ".", "k"])
    arrows = [
        sum(isinstance(part, FancyArrowPatch) for part in axes.patches)
        for axes in drawn.figure.axes
    ]
    assert arrows == [1, 4 + 3]
    assert drawn.dark != drawn.light


def test_influence_and_accuracies_show_every_seed():
    groups = {"a": RNG.random((3, 4)), "b": RNG.random((3, 4))}
    drawn = far_apart.plot_influence_by_distance((1, 4, 16, 64), groups)
    assert all(shown(drawn.figure.axes[0], range(4), rows) for rows in groups.values())
    panels = {"4 tokens": groups, "256 tokens": {"a": RNG.random((3, 4))}}
    drawn = far_apart.plot_accuracies((10, 20, 30, 40), panels, 0.2, 0.95)
    for axes, models in zip(drawn.figure.axes, panels.values(), strict=True):
        assert all(shown(axes, range(4), rows) for rows in models.values())
