"""Figures on whether and when runs solve their task draw what they are given."""

import numpy as np
from measured_transformer.analysis.solving import Solved
from measured_transformer.figures.solving import steps_strip, success_map

RNG = np.random.default_rng(0)
SOON = Solved(np.array([20.0, 30.0, 60.0]), np.array([True, True, False]))
LATE = Solved(np.array([50.0, 55.0, 60.0]), np.array([True, True, True]))


def lines(axes):
    return [
        (np.asarray(x.get_xdata(), float), np.asarray(x.get_ydata(), float), x)
        for x in axes.get_lines()
    ]


def test_steps_have_a_row_an_arm():
    drawn = steps_strip({"a": ("pre", SOON), "b": ("post", LATE)}).figure
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["a", "b"]
    assert any(np.allclose(x, SOON.steps) for x, _, _ in lines(drawn.axes[0]) if len(x) == 3)


def test_map_has_a_number_in_each_cell_that_was_trained():
    counts = {
        "a": np.array([[2.0, np.nan], [0.0, 1.0]]),
        "b": np.array([[np.nan, 2.0], [2.0, 2.0]]),
    }
    axes = success_map(counts, (2, 6), (0.001, 0.01), 2).figure.axes
    for panel, found in zip(axes, counts.values(), strict=True):
        written = {text.get_position(): text.get_text() for text in panel.texts}
        assert written == {
            (j, i): f"{number:.0f}" if np.isfinite(number) else "-"
            for (i, j), number in np.ndenumerate(found)
        }
        assert [label.get_text() for label in panel.get_xticklabels()] == ["0.001", "0.01"]
    assert axes[0].get_title(loc="left") == "a"
