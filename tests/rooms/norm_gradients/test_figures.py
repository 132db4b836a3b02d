"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.norm_gradients import figures

RESULTS = load_results("norm_gradients")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_tower, []),
        (figures.plot_by_depth, ["depths"]),
        (figures.plot_top, ["depths"]),
        (figures.plot_ends, ["untrained", "followed"]),
        (figures.plot_kinds, ["untrained"]),
        (figures.plot_direction, ["untrained"]),
        (figures.plot_remedies, ["remedies"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def curves(axes):
    return [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]


def test_every_draw_is_a_line_and_the_strong_one_the_geometric_mean():
    depths = RESULTS["depths"]
    figure = figures.plot_by_depth(depths).figure
    for axes, placement in zip(figure.axes, ("pre", "post"), strict=True):
        drawn = curves(axes)
        values = depths.gradient.sel(placement=placement, depth=8, after=[1, 2, 4, 8])
        rows = values.transpose("seed", "after").values
        for row in (*rows, np.exp(np.log(rows).mean(0))):
            assert any(len(y) == len(row) and np.allclose(y, row) for y in drawn)


def test_every_run_of_the_remedies_is_a_mark():
    remedies = RESULTS["remedies"]
    figure = figures.plot_remedies(remedies).figure
    marks = sum(
        len(line.get_xdata())
        for axes in figure.axes
        for line in axes.get_lines()
        if line.get_marker() != "None"
    )
    assert marks == remedies.steps.size


def test_both_ends_of_the_claim_are_shaded_in_every_panel():
    figure = figures.plot_ends(RESULTS["untrained"], RESULTS["followed"]).figure
    for axes in figure.axes:
        (band,) = axes.patches
        assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((1 / 5, 1 / 3))


def test_labels_keep_their_distance_and_their_order():
    found = figures.apart([3.0, 1.0, 1.1], 0.5)
    assert found[2] - found[1] >= 0.5 - 1e-9
    assert found[0] > found[2]
    assert sum(found) == pytest.approx(5.1)
