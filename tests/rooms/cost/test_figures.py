"""Figures of cost draw the numbers that they are given."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.cost import figures as cost
from measured_book.rooms.cost import measure
from measured_book.rooms.cost.measure import Times, crossovers
from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.roofline import A100


def times(crossing: float) -> Times:
    lengths = (64, 128, 256, 512)
    ratios = np.array(lengths) / crossing
    return Times(lengths, 64, 512, ratios, 0.9 * ratios, 1.1 * ratios, ratios, ratios)


def lines(drawn, panel=0):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in drawn.figure.axes[panel].get_lines()
    ]


def test_shares_fill_the_panel_and_mark_the_crossovers():
    drawn = cost.plot_shares_over_length(crossovers())
    axes = drawn.figure.axes[0]
    assert sorted(x[0] for x, _ in lines(drawn)) == [1, 2, 4, 6]
    assert [text.get_text() for text in axes.texts] == ["n = d", "A", "B", "C"]
    tops = [area.get_paths()[0].get_extents().y1 for area in axes.collections]
    assert tops[-1] == pytest.approx(1)
    assert drawn.light != drawn.dark


def test_times_are_drawn_with_count_and_crossings():
    drawn = cost.plot_times_over_length({"one": times(200.0)}, {"one": "attention"})
    found = lines(drawn)
    one = times(200.0)
    assert any(np.allclose(y, one.ratios) for _, y in found if len(y) == 4)
    assert any(len(x) == 1 and np.isclose(x[0], one.crossover) for x, _ in found)
    counted = next((x, y) for x, y in found if len(x) == 60)
    assert counted[1] == pytest.approx((8 + 4 * counted[0]) / 16)
    operations = Operations(300, 100)
    assert operations.attention / operations.network == pytest.approx((8 + 4 * 3) / 16)


def test_bars_have_the_lengths_of_their_shares():
    models = {"a": {"projections": 1.0, "pairs": 1.0, "network": 2.0}}
    widths = [bar.get_width() for bar in cost.plot_shares_of_models(models).figure.axes[0].patches]
    assert widths == [0.25, 0.25, 0.5]
    drawn = cost.plot_multiplications(3, 2)
    bars = [[bar.get_width() for bar in axes.patches] for axes in drawn.figure.axes]
    assert sum(bars[0]) == Operations(3, 2).attention
    assert sum(bars[1]) == Operations(3, 2).network


def test_tiles_of_the_future_are_not_drawn():
    drawn = cost.plot_tiles(8, 2, at=(2, 1))
    plain, tiled = drawn.figure.axes
    squares = [patch for patch in plain.patches if patch.get_width() == patch.get_height() == 1]
    assert len(squares) == 64
    squares = [patch for patch in tiled.patches if patch.get_width() == patch.get_height() == 2]
    assert len(squares) == 4 * 5 / 2
    strongest = max(squares, key=lambda square: 1 - min(square.get_facecolor()[:3]))
    assert strongest.get_xy() == (2, 4)
    assert drawn.light != drawn.dark


def test_every_point_stands_on_the_roof():
    points = measure.intensities()
    axes = cost.plot_roofline(A100, points).figure.axes[0]
    single = [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.get_lines()
        if len(line.get_xdata()) == 1
    ]
    assert sorted(x for x, _ in single) == sorted(points.values())
    for x, y in single:
        assert y == pytest.approx(min(312, 2.039 * x))


def test_patterns_have_as_many_pairs_as_they_say():
    figure = cost.plot_patterns(24, 6).figure
    for axes, pairs in zip(figure.axes, (300, 129, 165), strict=True):
        squares = [patch for patch in axes.patches if patch.get_width() == 1]
        assert len(squares) == pairs
        assert f"{pairs} pairs" in [text.get_text() for text in axes.texts]


def test_fields_show_the_mean_and_frame_what_can_be_reached():
    reach = load_results("cost")["reach"]
    axes = cost.plot_reach(reach).figure.axes[0]
    words = [text.get_text() for text in axes.texts]
    means = reach.accuracy.mean("seed").values.ravel()
    assert words == [f"{value:.2f}" for value in means]
    framed = [patch.get_edgecolor()[3] > 0 for patch in axes.patches]
    wanted = [measure.reachable(arm, delay) for arm in measure.ARMS for delay in measure.DELAYS]
    assert framed == wanted
    dots = [line for line in axes.get_lines() if len(line.get_xdata()) == reach.sizes["seed"]]
    assert len(dots) == len(wanted)


def test_capacity_has_a_line_for_each_seed_and_mean():
    capacity = load_results("cost")["capacity"]
    found = lines(cost.plot_capacity(capacity))
    for arm in measure.MEMORIES:
        values = capacity.accuracy.sel(arm=arm).transpose("seed", "pairs").values
        for row in (*values, values.mean(0)):
            assert any(len(y) == len(row) and np.allclose(y, row) for _, y in found)


def test_lookup_has_a_line_for_each_seed_and_mean():
    lookup = load_results("cost")["lookup"]
    found = lines(cost.plot_lookup(lookup))
    for arm in measure.LOOKUP_ARMS:
        values = lookup.accuracy.sel(arm=arm).transpose("seed", "back").values
        for row in (*values, values.mean(0)):
            assert any(len(y) == len(row) and np.allclose(y, row) for _, y in found)
