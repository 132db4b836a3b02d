"""Figures of one layer draw the numbers that they are given."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from measured_transformer.chapters.one_layer import figures as one_layer
from measured_transformer.chapters.one_layer.measure import Cost, Strip, strips, toy_layer
from measured_transformer.figures.style import COLOURS


def test_strips_have_a_cell_a_number_and_a_minus_below_zero():
    made = (
        Strip("input", "residual", False, ((1.0, -2.0),), (3, 2)),
        Strip("scores", "attention", True, ((0.5, -1.0, 0.0), (9.0, -0.1, 1.0)), (2, 3, 3)),
    )
    drawn = one_layer.plot_token_strips({"one": made})
    axes = drawn.figure.axes[0]
    cells = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_width() == 1]
    bands = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_width() != 1]
    words = [text.get_text() for text in axes.texts]
    assert len(cells) == 8
    assert len(bands) == 1  # the row that mixes
    assert words.count("\N{MINUS SIGN}") == 3
    assert {"one", "input", "scores", "(3, 2)", "(2, 3, 3)"} <= set(words)
    lightness = [sum(cell.get_facecolor()[:3]) for cell in cells]
    assert lightness[1] < lightness[0]  # the larger number is stronger
    assert lightness[4] == pytest.approx(3)  # zero is paper
    assert drawn.light != drawn.dark


def test_both_placements_stand_side_by_side_and_must_match():
    layers = {name: strips(*toy_layer(name), token=0) for name in ("post", "pre")}
    drawn = one_layer.plot_token_strips(layers)
    headings = [axes.texts[0].get_text() for axes in drawn.figure.axes]
    assert headings == ["post", "pre"]
    with pytest.raises(ValueError, match="as many values each"):
        one_layer.plot_token_strips({"a": layers["post"], "b": layers["pre"][:3]})


def test_full_circles_stand_where_something_moves():
    found = [("widen", "ffn", True, False), ("scores", "attention", True, True)]
    drawn = one_layer.plot_who_mixes({"one": found})
    circles = drawn.figure.axes[0].get_lines()
    filled = [circle.get_markerfacecolor() for circle in circles]
    assert filled == [COLOURS["ffn"], "none", COLOURS["attention"], COLOURS["attention"]]


def test_bars_are_shares_of_parameters_and_of_products():
    found = [
        Cost("queries", "attention", False, ((3, 4),), (2, 3, 2), 20, 100),
        Cost("norm 1", "norm", False, ((3, 4),), (3, 4), 5, 0),
        Cost("widen", "ffn", False, ((3, 4),), (3, 8), 75, 300),
    ]
    drawn = one_layer.plot_costs_by_operation(found)
    widths = [[bar.get_width() for bar in axes.patches] for axes in drawn.figure.axes]
    assert np.allclose(widths, [[0.2, 0.05, 0.75], [0.25, 0, 0.75]])
    labels = [text.get_text() for text in drawn.figure.axes[0].get_yticklabels()]
    assert labels == ["queries", "norm 1", "widen"]


def test_lines_show_each_seed_their_mean_and_the_formula():
    behind = np.array([[1.0, 0.8, 0.7], [1.0, 1.0, 0.9]])
    drawn = one_layer.plot_kept_over_depth(np.ones((2, 3)), {0.1: behind})
    drawn_lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[0].get_lines()]
    for expected in (behind[0], behind[1], behind.mean(0), 0.9 ** np.arange(3), np.ones(3)):
        assert any(np.allclose(line, expected) for line in drawn_lines if len(line) == 3)
    for behind in ({}, dict.fromkeys((0.1, 0.2, 0.3), np.ones((2, 3)))):
        with pytest.raises(ValueError, match="one or two rates"):
            one_layer.plot_kept_over_depth(np.ones((2, 3)), behind)
