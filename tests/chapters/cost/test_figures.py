"""Figures of cost draw the numbers that they are given."""

import numpy as np
import pytest
from measured_transformer.analysis.cost import Operations
from measured_transformer.chapters.cost import figures as cost
from measured_transformer.chapters.cost.measure import Times, crossovers


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
