"""Figures on neurons draw the numbers that they are given."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from measured_transformer.chapters.neurons import figures
from measured_transformer.chapters.neurons.measure import Portrait


def texts(axes):
    return [text.get_text() for text in axes.texts]


def rectangles(axes):
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def test_a_neuron_shades_what_it_fires_at():
    seen = Portrait(
        lines=[["a", " ", "b"], ["b", "\n", "a"]],
        said=[[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
        products={"a": np.array([-1.0, 0.5, 2.0]), " ": np.array([-3.0, -2.0, -1.0])},
        pushes={"b": 1.5, "a": -0.5, " ": -1.0},
    )
    drawn = figures.plot_one_neuron(seen)
    assert drawn.light != drawn.dark
    top, left, right = drawn.figure.axes
    assert texts(top) == ["a", "␣", "b", "b", "↵", "a"]
    shaded = {(patch.get_x(), patch.get_y()) for patch in rectangles(top)}
    assert shaded == {(0, 0), (2, 1)}
    assert [patch.get_width() for patch in rectangles(right)] == [1.5, -0.5, -1.0]
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["a", "␣"]
    (middles,) = [line for line in left.get_lines() if line.get_marker() == "^"]
    assert np.asarray(middles.get_xdata()).tolist() == [0.5, -2.0]


def test_a_neuron_that_says_nothing_can_be_drawn():
    seen = Portrait([["a"]], [[0.0]], {"a": np.zeros(3)}, {"a": 0.0})
    assert rectangles(figures.plot_one_neuron(seen).figure.axes[0]) == []


def test_both_conventions_mark_one_key_and_one_value():
    drawn = figures.plot_conventions(d_model=3, d_ff=5, neuron=1)
    for axes in drawn.figure.axes:
        cells = rectangles(axes)
        assert len(cells) == 15 + 15 + 3
        colours = [patch.get_facecolor() for patch in cells]
        strongest = min(set(colours), key=lambda colour: sum(colour[:3]))
        assert colours.count(strongest) == 6  # three numbers of the key, three of the value
        assert {"key", "value"} <= set(texts(axes))
    assert {"$W_1$", "$W_2$"} <= set(texts(drawn.figure.axes[0]))
    assert {"$W_{in}$", "$W_{out}$"} <= set(texts(drawn.figure.axes[1]))


def test_every_seed_of_every_arm_is_a_sorted_line():
    areas = {
        "one": {"trained": np.array([[0.9, 0.1], [0.2, 0.3]]), "untrained": np.full((2, 2), 0.5)}
    }
    (axes,) = figures.plot_told_apart(areas, 0.95).figure.axes
    rows = [np.asarray(line.get_ydata(), float).tolist() for line in axes.get_lines()]
    assert rows[1:] == [[0.1, 0.9], [0.2, 0.3], [0.5, 0.5], [0.5, 0.5]]
    assert rows[0] == [0.95, 0.95]


def test_strips_have_a_dot_for_each_seed():
    panels = {
        "first": {"a": np.array([0.1, 0.3]), "b": np.array([0.2, 0.4])},
        "second": {"a": np.ones(3)},
    }
    drawn = figures.plot_strips(panels, {"a": "ffn", "b": "none"}, limits=(0.0, 2.0), reference=0.5)
    for axes, groups in zip(drawn.figure.axes, panels.values(), strict=True):
        dots = [
            np.asarray(line.get_xdata(), float).tolist()
            for line in axes.get_lines()
            if line.get_marker() == "o"
        ]
        assert dots == [list(values) for values in groups.values()]
        assert axes.get_xlim() == (0.0, 2.0)
    assert drawn.figure.axes[0].get_xlabel() == "first"


def test_shares_over_steps_and_widths():
    over = {"ReLU": np.array([[0.5, 0.4], [0.5, 0.2]])}
    left, right = figures.plot_busy(
        [0, 300], over, {32: np.array([0.1]), 64: np.array([0.3])}
    ).figure.axes
    means = [line for line in left.get_lines() if line.get_marker() == "^"]
    assert np.asarray(means[0].get_ydata(), float).tolist() == pytest.approx([0.5, 0.3])
    dots = [np.asarray(line.get_ydata(), float).tolist() for line in right.get_lines()]
    assert [0.1] in dots
    assert [0.3] in dots
    assert [0.1, 0.3] in dots


def test_dots_stand_at_promised_and_measured_changes():
    promise, measure = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3) ** 2
    (axes,) = figures.plot_promised({"last block": (promise, measure)}).figure.axes
    dots = axes.get_lines()[-1]
    assert np.asarray(dots.get_xdata(), float).tolist() == promise.ravel().tolist()
    assert np.asarray(dots.get_ydata(), float).tolist() == measure.ravel().tolist()
    fewer = (
        figures.plot_promised({"last": (promise, measure)}, most=4).figure.axes[0].get_lines()[-1]
    )
    assert len(np.asarray(fewer.get_xdata())) == 4
