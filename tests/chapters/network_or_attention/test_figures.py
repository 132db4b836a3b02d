"""Figures on networks and attention draw the numbers that they are given."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from measured_transformer.chapters.network_or_attention import figures
from measured_transformer.chapters.network_or_attention.measure import Budget, two_heads


def lines(axes):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in axes.get_lines()
    ]


def drawn_at(axes, x, y):
    return any(np.array_equal(a, x) and np.array_equal(b, y) for a, b in lines(axes))


def test_budgets_stand_end_to_end_and_straight_networks_are_hatched():
    found = {
        "whole": Budget(10, 20, True, 50),
        "straight": Budget(10, 20, False, 50),
        "attention": Budget(30, 0, False, 50),
    }
    drawn = figures.plot_budgets(found)
    bars = [p for p in drawn.figure.axes[0].patches if isinstance(p, Rectangle)]
    shown = [(bar.get_x(), bar.get_width(), bool(bar.get_hatch())) for bar in bars]
    assert shown == [
        (0, 10, False),
        (10, 20, False),
        (0, 10, False),
        (10, 20, True),
        (0, 30, False),
    ]
    assert drawn.light != drawn.dark


def test_the_second_plane_tells_the_pairs_apart_by_its_line():
    found = two_heads()
    first, second = figures.plot_two_planes(found).figure.axes
    assert drawn_at(first, [0, 1], [1, 0])
    assert drawn_at(first, [0, 1], [0, 1])
    odd = found.bits.sum(1) == 1
    assert drawn_at(second, found.mean[odd].numpy(), found.looks[odd].numpy())
    (line,) = (one for one in second.get_lines() if one.get_linestyle() == "--")
    (x, y), slope = line.get_xy1(), line.get_slope()
    above = (found.looks - (y + slope * (found.mean - x))) > 0
    assert (above == odd).all()


def test_strips_have_a_panel_a_measure_and_a_reference_where_there_is_one():
    loss = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0])}
    panels = {"loss": loss, "accuracy": {"a": np.array([0.5, 0.6])}}
    drawn = figures.plot_strips(
        panels, {"a": "ffn", "b": "attention"}, {"accuracy": 0.1}
    ).figure.axes
    assert [axes.get_xlabel() for axes in drawn] == ["loss", "accuracy"]
    assert any(np.array_equal(x, [3.0, 4.0]) for x, _ in lines(drawn[0]))
    dashed = [line for line in drawn[1].get_lines() if line.get_linestyle() == "--"]
    assert [list(line.get_xdata()) for line in dashed] == [[0.1, 0.1]]
    assert not [line for line in drawn[0].get_lines() if line.get_linestyle() == "--"]


def test_every_seed_of_every_task_stands_in_both_planes():
    one = {"reversal": (np.array([0.0, 0.01]), np.array([2.0, 2.1])),
           "text": (np.array([0.04, -0.02]), np.array([0.2, 0.3]))}  # fmt: skip
    two = {"reversal": (np.array([0.5, 0.6]), np.array([5.0, 6.1]))}
    drawn = figures.plot_plane({"trained": one, "replaced": two}, margin=0.1).figure
    for axes, tasks in zip(drawn.axes, (one, two), strict=True):
        for across, up in tasks.values():
            assert drawn_at(axes, across, up)
            assert axes.get_xlim()[0] < across.min()
            assert up.max() < axes.get_ylim()[1]
        (band,) = axes.collections
        edge = band.get_paths()[0].vertices
        assert np.abs(np.abs(edge[:, 1] - edge[:, 0]) - 0.1).max() == pytest.approx(0, abs=1e-9)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["reversal", "text"]


def test_each_block_has_a_row_for_either_part():
    network, attention = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])
    (axes,) = figures.plot_by_block({"text": (network, attention)}).figure.axes
    rows = [tick.get_text() for tick in axes.get_yticklabels()]
    assert rows == [
        "attention, block 1", "network, block 1", "attention, block 2", "network, block 2",
    ]  # fmt: skip
    for values in (network, attention):
        for block in range(2):
            assert any(np.array_equal(x, values[:, block]) for x, _ in lines(axes))
