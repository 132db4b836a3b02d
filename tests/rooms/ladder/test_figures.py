"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.ladder import figures

RESULTS = load_results("ladder")
BESIDE = {"late_20", "muon_5", "muon_20"}
"""What no figure shows: fresh seeds of two arms, and another optimiser."""
RUNGS = {
    tokens: [
        result
        for name, result in RESULTS.items()
        if name.endswith(f"_{tokens}") and name not in BESIDE
    ]
    for tokens in (5, 20, 60)
}
RUNGS = {tokens: rung for tokens, rung in RUNGS.items() if rung}


@pytest.mark.parametrize("draw", [figures.plot_falls, figures.plot_race, figures.plot_gains])
def test_figures_are_drawn_for_day_and_night(draw):
    drawn = draw(RUNGS)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_final_loss_is_a_dot():
    for panel, rung in zip(figures.plot_race(RUNGS).figure.axes, RUNGS.values(), strict=True):
        losses = np.concatenate([one.loss.values.ravel() for one in rung])
        drawn = np.concatenate([np.asarray(line.get_xdata(), float) for line in panel.lines])
        assert np.isin(losses.round(9), drawn.round(9)).all()


def test_curves_are_those_of_the_schedules_that_are_shown():
    for panel, rung in zip(figures.plot_falls(RUNGS).figure.axes, RUNGS.values(), strict=True):
        drawn = [np.asarray(line.get_ydata()) for line in panel.lines]
        for one in rung:
            shown = [name for name in one.schedule.values if name in figures.SHOWN]
            for row in one.fall.sel(schedule=shown).values.reshape(-1, one.sizes["part"]):
                later = row[figures.FIRST :]
                assert any(np.allclose(later, each) for each in drawn if len(each) == len(later))


def test_gains_are_what_a_schedule_ends_below_the_constant_rate():
    (panel,) = figures.plot_gains(RUNGS).figure.axes
    lines = {line.get_label(): line for line in panel.lines}
    for name, (_, label) in figures.ARMS.items():
        measured = {
            tokens: one.loss.sel(schedule=name).values
            for tokens, rung in RUNGS.items()
            for one in rung
            if name in one.schedule.values
        }
        if name == "constant" or not measured:
            assert label not in lines
            continue
        gains = [
            (RESULTS[f"ends_{tokens}"].loss.sel(schedule="constant").values - losses).mean()
            for tokens, losses in measured.items()
        ]
        np.testing.assert_allclose(lines[label].get_ydata(), gains)
        np.testing.assert_allclose(lines[label].get_xdata(), list(measured), rtol=0.1)
