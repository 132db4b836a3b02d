"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.ladder import figures

RESULTS = load_results("ladder")
SHORT, LONG = ([RESULTS[f"{name}_{tokens}"] for name in ("ends", "cosines")] for tokens in (5, 20))


@pytest.mark.parametrize("draw", [figures.plot_falls, figures.plot_race])
def test_figures_are_drawn_for_day_and_night(draw):
    drawn = draw(SHORT, LONG)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_final_loss_is_a_dot():
    for panel, rung in zip(figures.plot_race(SHORT, LONG).figure.axes, (SHORT, LONG), strict=True):
        losses = np.concatenate([one.loss.values.ravel() for one in rung])
        drawn = np.concatenate([np.asarray(line.get_xdata(), float) for line in panel.lines])
        assert np.isin(losses.round(9), drawn.round(9)).all()


def test_curves_are_those_of_the_two_schedules():
    for panel, rung in zip(figures.plot_falls(SHORT, LONG).figure.axes, (SHORT, LONG), strict=True):
        drawn = [np.asarray(line.get_ydata()) for line in panel.lines]
        for row in rung[0].fall.values.reshape(-1, rung[0].sizes["part"]):
            assert any(np.allclose(row[2:], each) for each in drawn if len(each) == len(row) - 2)
