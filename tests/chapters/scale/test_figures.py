"""Figures of the scale: what is drawn is what was measured."""

import numpy as np
import pytest
from measured_transformer.chapters.scale.figures import (
    CONCEPTS,
    plot_accuracies,
    plot_learning_curves,
    plot_shares,
    plot_spreads,
    plot_tosses,
    plot_what_passes,
)
from measured_transformer.figures.style import COLOURS


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_tosses_are_densities_that_fall_together_when_divided():
    above, below = plot_tosses((4, 16)).figure.axes
    for line in above.get_lines():
        x, density = line.get_data()
        assert np.sum(density) * (x[1] - x[0]) == pytest.approx(1)
    for width in (4, 16):
        x, density = lines(below)[f"width {width}"].get_data()
        assert np.sum(density * x**2) * (x[1] - x[0]) == pytest.approx(1)


def test_shares_are_ordered_in_every_row_before_they_are_averaged():
    rows = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    above, below = plot_shares({16: rows}, {16: np.full((2, 3), 1 / 3)}).figure.axes
    np.testing.assert_allclose(lines(above)["width 16"].get_ydata(), [0.7, 0.2, 0.1])
    np.testing.assert_allclose(lines(below)["width 16"].get_ydata(), [1 / 3] * 3)


def test_what_passes_counts_rows_and_marks_the_mean():
    [axes] = plot_what_passes({"ten keys": {16: np.array([1.0, 0.1, 0.01, 2.89])}}).figure.axes
    curve = lines(axes)["width 16"]
    np.testing.assert_allclose(curve.get_xdata(), [0.01, 0.1, 1.0, 2.89])
    np.testing.assert_allclose(curve.get_ydata(), [0.25, 0.5, 0.75, 1.0])
    [mean] = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert float(mean.get_xdata()[0]) == pytest.approx(1.0)
    assert float(mean.get_ydata()[0]) == pytest.approx(0.5)


def test_accuracies_have_a_row_for_each_width_and_divisor():
    found = {
        "16": {"undivided": np.array([0.5, 0.6]), "root": np.array([0.9, 1.0])},
        "512": {"learned": np.array([0.2, 0.3])},
    }
    [axes] = plot_accuracies({"reversal": found}).figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["16: undivided", "16: by $\\sqrt{d_h}$", "512: learned"]
    diamonds = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert [float(np.ravel(d.get_xdata())[0]) for d in diamonds] == pytest.approx(
        [0.55, 0.95, 0.25]
    )
    assert diamonds[1].get_color() == COLOURS[CONCEPTS["root"]]


def test_learning_curves_have_a_panel_a_setting():
    arms = {"root": np.array([[0.1, 0.9], [0.3, 0.7]])}
    figure = plot_learning_curves(
        {"a": arms, "b": arms}, np.array([5, 10]), labels={"root": "divided"}
    )
    assert len(figure.figure.axes) == 2
    mean = lines(figure.figure.axes[0])["divided"]
    np.testing.assert_allclose(mean.get_ydata(), [0.2, 0.8])
    assert (
        len(plot_learning_curves({"": arms}, np.array([5, 10]), labels={"root": "x"}).figure.axes)
        == 1
    )


def test_spreads_point_from_before_to_after():
    [axes] = plot_spreads({"wide": (np.array([1.0, 2.0]), np.array([3.0, 4.0]))}).figure.axes
    arrows = [(note.xyann[0], note.xy[0]) for note in axes.texts]
    assert arrows == [(1.0, 3.0), (2.0, 4.0)]
