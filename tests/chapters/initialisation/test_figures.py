"""Every figure of the chapter draws what it is given: each seed, the right scale, nothing changed."""

import numpy as np
from measured_transformer.chapters.initialisation import figures
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
TABLE = np.exp(RNG.normal(size=(3, 5)))


def shows(drawn: ThemedFigure, row: np.ndarray, panel: int = 0) -> bool:
    lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[panel].get_lines()]
    return any(y.shape == row.shape and np.allclose(y, row) for y in lines)


def test_sizes_are_drawn_in_powers_of_ten():
    drawn = figures.plot_through_matrices({"none": {"f": TABLE}, "ReLU": {"f": 10 * TABLE}})
    for row in (*np.log10(TABLE), np.log10(TABLE).mean(0)):
        assert shows(drawn, row, 0)
        assert shows(drawn, 1 + row, 1)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark != drawn.light


def test_passages_show_every_seed_and_no_scale_twice():
    arms = {name: {f: f * TABLE for f in (0.1, 1.0, 5.0)} for name in "abcd"}
    drawn = figures.plot_passages(arms, label="stream", x_label="layers")
    for panel in range(4):
        for factor in (0.1, 1.0, 5.0):
            for row in (*TABLE, TABLE.mean(0)):
                assert shows(drawn, factor * row, panel)
    colours = {
        line.get_color()
        for line in drawn.figure.axes[0].get_lines()
        if not line.get_label().startswith("_")
    }
    assert len(colours) == 3
    np.testing.assert_allclose(drawn.figure.axes[0].get_lines()[0].get_xdata(), [0, 0.5, 1, 1.5, 2])


def test_a_line_ends_where_a_seed_is_missing_a_number():
    broken = TABLE.copy()
    broken[0, 0] = np.nan
    drawn = figures.plot_passages(
        {name: {1.0: broken} for name in "abcd"}, label="g", x_label="layers"
    )
    mean = drawn.figure.axes[0].get_lines()[3].get_ydata()
    assert np.isnan(mean[0])
    np.testing.assert_allclose(mean[1:], TABLE[:, 1:].mean(0))


def test_losses_by_scale_are_on_a_logarithmic_axis():
    arms = {arm: (arm, TABLE + place) for place, arm in enumerate(figures.ARM_CONCEPTS)}
    drawn = figures.plot_losses_by_scale(
        [0.1, 0.5, 1.0, 2.0, 5.0], arms, start=1.0 + TABLE.max() + 3
    )
    for place in range(4):
        for row in (*TABLE, TABLE.mean(0)):
            assert shows(drawn, row + place)
    assert drawn.figure.axes[0].get_xscale() == "log"


def test_a_line_of_losses_ends_far_above_a_guess():
    lost = np.array([[0.1, 0.2, 2.0, 3.0, 1e6], [0.1, 0.2, 2.2, 2.6, 5.0]])
    arms = dict.fromkeys(figures.ARM_CONCEPTS, ("arm", lost))
    drawn = figures.plot_losses_by_scale([0.1, 0.5, 1.0, 2.0, 5.0], arms, start=2.5)
    (axes,) = drawn.figure.axes
    means = [line.get_ydata() for line in axes.get_lines() if len(line.get_ydata()) == 5]
    assert any(np.allclose(y, [0.1, 0.2, 2.1, 2.8, np.nan], equal_nan=True) for y in means)
    assert 2.5 < axes.get_ylim()[1] < 5


def test_rules_are_drawn_from_layer_one():
    drawn = figures.plot_write_rules({"a": [3.0, 2.0, 1.0], "b": [1.0, 1.0, 1.0]})
    line = drawn.figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), [3, 2, 1])


def test_differences_are_drawn_a_dot_a_seed():
    drawn = figures.plot_rule_losses({"reversal": TABLE[0], "text": TABLE[1]}, margin=0.02)
    assert any(
        len(line.get_xdata()) == 5 and np.allclose(line.get_xdata(), TABLE[1])
        for line in drawn.figure.axes[0].get_lines()
    )
