"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.warm_up import figures, reading

RESULTS = load_results("warm_up")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_remedies, ["remedies"]),
        (figures.plot_high, ["high"]),
        (figures.plot_first_steps, ["first_steps"]),
        (figures.plot_curvature, ["curvature"]),
        (figures.plot_runs, ["spikes"]),
        (figures.plot_around, ["spikes"]),
        (figures.plot_cures, ["spikes", "cures"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_cell_of_the_map_says_its_share():
    remedies = RESULTS["remedies"]
    (panel,) = figures.plot_remedies(remedies).figure.axes
    shown = [text.get_text().split("\n")[0] for text in panel.texts]
    shares = remedies.solved.mean("seed").transpose("arm", "rate").values.ravel()
    assert shown == [f"{share:.0%}" for share in shares]


def test_every_recorded_run_is_a_line():
    spikes = RESULTS["spikes"]
    for panel in figures.plot_runs(spikes).figure.axes:
        runs = [line for line in panel.lines if len(line.get_xdata()) == spikes.sizes["bin"]]
        assert len(runs) == spikes.sizes["seed"] + 1, "one is drawn stronger as well"


def test_alarms_have_a_curve_and_a_row_each():
    spikes = RESULTS["spikes"]
    shares = {s: reading.share_warned(spikes, signal=s) for s in spikes.signal.values}
    left, right = figures.plot_alarms(spikes, shares, reading.BUDGET).figure.axes
    curves = [line for line in left.lines if len(line.get_xdata()) == spikes.sizes["threshold"]]
    assert len(curves) == spikes.sizes["signal"]
    assert len(right.get_yticklabels()) == spikes.sizes["signal"]
