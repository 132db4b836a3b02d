"""Every figure of the chapter draws what it is given: each seed, the right scale, nothing changed."""

import numpy as np
from measured_transformer.chapters.warm_up import figures

RNG = np.random.default_rng(0)
TABLE = np.exp(RNG.normal(size=(3, 5)))
LOOKS = [0, 1, 3, 7, 20]
LABELS = {"none": "at once", "warm": "warm-up", "clip": "clipped", "pre": "pre-norm"}


def shows(drawn, row, panel):
    lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[panel].get_lines()]
    return any(len(y) == len(row) and np.allclose(y, row) for y in lines)


def test_first_steps_show_every_seed_and_count_steps_from_one():
    tables = [dict.fromkeys(LABELS, factor * TABLE) for factor in (1, 2, 3, 4)]
    drawn = figures.plot_first_steps(*tables, LOOKS, LABELS)
    for panel, axes in enumerate(drawn.figure.axes):
        for row in TABLE:
            assert shows(drawn, (panel + 1) * row, panel)
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert drawn.figure.axes[1].get_lines()[0].get_xdata()[0] == 1


def test_curvature_marks_the_limit():
    drawn = figures.plot_curvature({"none": TABLE}, {"none": 2 * TABLE}, LOOKS, LABELS)
    for row in TABLE:
        assert shows(drawn, row, 0)
        assert shows(drawn, 2 * row, 1)
    assert shows(drawn, np.ones(2), 1)


def test_bands_have_a_panel_an_arm_and_ticks_at_the_rates():
    rates = (1e-3, 2e-3, 4e-3, 1e-2, 3e-2)
    drawn = figures.plot_bands(
        {"post": TABLE, "pre": 2 * TABLE}, rates, {"post": "a", "pre": "b"}, success=0.1
    )
    assert shows(drawn, TABLE[0], 0)
    assert shows(drawn, 2 * TABLE[2], 1)
    ticks = [label.get_text() for label in drawn.figure.axes[1].get_xticklabels()]
    assert ticks == ["0.001", "0.002", "0.004", "0.01", "0.03"]


def test_remedies_pair_losses_with_spreads_of_the_same_seeds():
    names = list("abcdefg")
    losses = {name: TABLE[0] + place for place, name in enumerate(names)}
    drawn = figures.plot_remedies(losses, dict.fromkeys(names, TABLE[1, :3]), 0.5)
    top, bottom = drawn.figure.axes
    assert [label.get_text() for label in top.get_yticklabels()] == names
    for line, name in zip(bottom.get_lines(), names, strict=True):
        assert np.allclose(line.get_xdata(), TABLE[1, :3])
        assert np.allclose(line.get_ydata(), losses[name][:3])


def test_spikes_are_marked_where_they_are():
    events = np.array([False, False, True, False, True])
    drawn = figures.plot_spikes(TABLE[0], TABLE[1], events, {"a": TABLE[2]})
    marks = drawn.figure.axes[0].get_lines()[1]
    assert np.allclose(marks.get_xdata(), [2, 4])
    assert np.allclose(marks.get_ydata(), TABLE[0][events])
    assert shows(drawn, TABLE[1], 1)


def test_explosion_is_logarithmic():
    drawn = figures.plot_explosion({"none": TABLE}, {"none": "none"})
    assert drawn.figure.axes[0].get_yscale() == "log"
    for row in TABLE:
        assert shows(drawn, row, 0)
