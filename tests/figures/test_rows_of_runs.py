"""A row of runs: every run at its steps, open where it was stopped, and a bar at their geometric mean."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from measured_book.figures.solving import draw_runs
from measured_transformer.viewer.style import look


@pytest.mark.parametrize("height", [0.1, 0.24])
def test_marks_are_open_where_runs_were_stopped_and_the_bar_is_the_geometric_mean(height):
    axes = Figure().subplots()
    draw_runs(
        axes,
        3.0,
        np.array([10.0, 1000.0, 100.0]),
        np.array([True, False, True]),
        "norm",
        height=height,
    )
    solved, stopped, bar = axes.get_lines()
    assert list(solved.get_xdata()) == [10.0, 100.0]
    assert list(stopped.get_xdata()) == [1000.0]
    assert stopped.get_markerfacecolor() == "none"
    assert solved.get_markerfacecolor() == look("norm")["color"]
    marks = np.concatenate([solved.get_ydata(), stopped.get_ydata()])
    assert np.abs(marks - 3.0).max() == pytest.approx(height)
    assert list(bar.get_xdata()) == pytest.approx([100.0, 100.0])
    assert list(bar.get_ydata()) == pytest.approx([3.0 - 1.5 * height, 3.0 + 1.5 * height])
