"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.schedules import figures, measure

RESULTS = load_results("schedules")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_lengths, ["lengths"]),
        (figures.plot_valley, []),
        (figures.plot_plane, ["plane"]),
        (figures.plot_lines, ["valley"]),
        (figures.plot_budget, ["race"]),
        (figures.plot_race, ["final", "text"]),
        (figures.plot_law, ["annealing"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_run_of_the_race_is_a_point():
    race = RESULTS["race"]
    (panel,) = figures.plot_budget(race).figure.axes
    points = sum(len(line.get_xdata()) for line in panel.lines if line.get_marker() in "ox")
    assert points == race.loss.size


def test_every_line_between_states_is_drawn():
    valley = RESULTS["valley"]
    for panel, line in zip(
        figures.plot_lines(valley).figure.axes, ("walls", "cooling", "floors"), strict=True
    ):
        drawn = [np.asarray(one.get_ydata(), dtype=float) for one in panel.lines]
        for row in valley.loss.sel(line=line).transpose("seed", "share").values:
            assert any(one.shape == row.shape and np.allclose(one, row) for one in drawn)


def test_predictions_are_drawn_beside_what_was_measured():
    annealing = RESULTS["annealing"]
    panels = figures.plot_law(annealing).figure.axes
    for panel, schedule in zip(panels, measure.HELD_OUT, strict=True):
        drawn = [np.asarray(one.get_ydata(), dtype=float) for one in panel.lines]
        for name in ("law", "sum_alone", "loss"):
            here = annealing[name].sel(schedule=schedule).isel(at=slice(measure.FROM, None))
            assert any(np.allclose(one, here.mean("seed").values) for one in drawn)
