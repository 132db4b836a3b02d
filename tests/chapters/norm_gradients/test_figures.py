"""Figures on gradients draw what they are given, seeds that lie powers of ten apart included."""

import numpy as np
import pytest
from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.norm_gradients import figures
from measured_transformer.chapters.norm_gradients.figures import plot_steps_strip

RNG = np.random.default_rng(0)
SOON = Solved(np.array([20.0, 30.0, 60.0]), np.array([True, True, False]))
LATE = Solved(np.array([50.0, 55.0, 60.0]), np.array([True, True, True]))
TABLE = np.exp(RNG.normal(size=(3, 4)))


def lines(axes):
    return [
        (np.asarray(x.get_xdata(), float), np.asarray(x.get_ydata(), float), x)
        for x in axes.get_lines()
    ]


def shows(axes, row):
    return any(len(y) == len(row) and np.allclose(y, row) for _, y, _ in lines(axes))


FAR = np.array([[1.0, 1e-4, 1e-6], [1.0, 1e-3, 1e-5], [1.0, 0.9, 0.8]])


@pytest.mark.parametrize("draw", [figures.plot_lengths_by_block, figures.plot_lengths_by_kind])
def test_the_strong_line_is_the_median(draw):
    name = "query" if draw is figures.plot_lengths_by_kind else "step 0"
    axes = draw({"(a)": {name: FAR}, "(b)": {name: FAR}}).figure.axes[0]
    faint = [line for line in axes.get_lines() if line.get_alpha() is not None]
    (strong,) = (line for line in axes.get_lines() if line.get_alpha() is None)
    assert len(faint) == 3
    assert np.asarray(strong.get_ydata(), float) == pytest.approx([1.0, 1e-3, 1e-5])
    assert list(strong.get_xdata()) == [1, 2, 3]


def test_ratios_have_more_than_one_number_at_their_axis():
    rows = {"pre": np.full((2, 4), 3.0), "post": np.full((2, 4), 0.3)}
    axes = figures.plot_ratios_by_depth(rows, (2, 6, 12, 24), (0.2, 1 / 3)).figure.axes[0]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3


def test_no_ratio_of_a_largest_to_a_smallest_is_below_one():
    drawn = figures.plot_spreads(
        {"a": np.array([1.5, 4.0, 30.0])}, 2.0, {"a": "ffn"}, "ratio"
    ).figure
    assert drawn.axes[0].get_xlim()[0] == 1


@pytest.mark.parametrize("draw", [figures.plot_lengths_by_block, figures.plot_lengths_by_kind])
def test_gradients_have_a_panel_a_placement_and_every_seed(draw):
    names = ("query", "up") if draw is figures.plot_lengths_by_kind else ("step 0", "step 10")
    drawn = draw(
        {"(a)": dict(zip(names, (TABLE, 2 * TABLE), strict=True)), "(b)": {names[0]: 3 * TABLE}}
    ).figure
    top, bottom = drawn.axes
    assert all(shows(top, row) for row in (*TABLE, *(2 * TABLE)))
    assert all(shows(bottom, row) for row in 3 * TABLE)
    assert top.get_yscale() == "log"


def test_ratios_show_the_stated_range():
    drawn = figures.plot_ratios_by_depth(
        {"pre": TABLE, "post": 2 * TABLE}, (2, 6, 12, 24), (0.2, 1 / 3)
    ).figure
    (band,) = drawn.axes[0].patches
    low, high = band.get_extents().transformed(drawn.axes[0].transData.inverted()).intervaly
    assert (low, high) == pytest.approx((0.2, 1 / 3))
    assert all(shows(drawn.axes[0], row) for row in TABLE)


def test_spreads_mark_the_limit():
    rows = {"a": TABLE[0], "b": TABLE[1]}
    drawn = figures.plot_spreads(rows, 2.0, {"a": "residual", "b": "ffn"}, "ratio").figure
    assert any(np.allclose(x, 2.0) for x, _, _ in lines(drawn.axes[0]) if len(x) == 2)
    assert drawn.axes[0].get_xscale() == "log"


def test_cosines_are_over_the_blocks_passed():
    drawn = figures.plot_cosines_by_state({"pre": TABLE, "post": -TABLE}).figure
    assert all(shows(drawn.axes[0], row) for row in (*TABLE, *(-TABLE)))


def test_remedies_ring_the_runs_that_were_stopped():
    panels = {
        "SGD": {"plain": ("post", SOON), "mended": ("sandwich", LATE)},
        "Adam": {"plain": ("post", LATE)},
    }
    drawn = figures.plot_remedies(panels).figure
    top, bottom = drawn.axes
    rings = [
        (list(x), list(y)) for x, y, line in lines(top) if line.get_markersize() == 9 and len(x)
    ]
    assert rings == [([60.0], [0.0])]
    assert not any(len(x) for x, _, line in lines(bottom) if line.get_markersize() == 9)


def test_steps_have_a_row_an_arm():
    drawn = plot_steps_strip({"a": ("pre", SOON), "b": ("post", LATE)}).figure
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["a", "b"]
    assert any(np.allclose(x, SOON.steps) for x, _, _ in lines(drawn.axes[0]) if len(x) == 3)
