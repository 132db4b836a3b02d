"""Figures on the feed-forward network draw the numbers that they are given."""

import numpy as np
import pytest
from measured_transformer.chapters.feed_forward import figures
from measured_transformer.chapters.feed_forward.measure import Fit, by_hand, published, whereabouts


def lines(drawn, panel):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in drawn.figure.axes[panel].get_lines()
    ]


def test_the_token_stands_on_its_contour():
    drawn = figures.plot_ramps(by_hand(), (2.0, 1.0))
    assert drawn.light != drawn.dark
    for panel in (0, 1):
        assert any(x.tolist() == [2.0] and y.tolist() == [1.0] for x, y in lines(drawn, panel))
    (legend,) = drawn.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"neuron {i}" for i in (1, 2, 3)]


def test_each_width_has_its_fits_and_ticks():
    x = np.linspace(-1, 1, 5)
    fits = {
        m: [Fit(np.linspace(-1, 1, m), m * x, 0.0), Fit(np.zeros(m), -m * x, 0.0)]
        for m in (1, 2, 3, 4)
    }
    drawn = figures.plot_widths(x, x**2, fits)
    for panel, m in enumerate(fits):
        found = lines(drawn, panel)
        assert any(np.allclose(y, m * x) for _, y in found if len(y) == 5)
        assert any(np.allclose(y, -m * x) for _, y in found if len(y) == 5)
        assert any(len(y) == m and np.allclose(x_, np.linspace(-1, 1, m)) for x_, y in found)


def test_zeros_between_positions_are_empty_cells():
    attention, network = np.tril(np.ones((3, 3))), np.eye(3)
    attention[1, 0] = 1e-15  # small is not zero
    drawn = figures.plot_seen_positions(attention, network)
    shown = [axes.get_images()[0].get_array() for axes in drawn.figure.axes[:2]]
    for found, blocks in zip(shown, (attention, network), strict=True):
        cells = np.ma.filled(np.ma.masked_invalid(found).astype(float), np.nan)
        assert np.array_equal(cells, np.where(blocks > 0, blocks, np.nan), equal_nan=True)


def test_every_seed_of_every_arm_is_drawn():
    values = {"a": np.array([0.1, 0.2, 0.4]), "b": np.array([0.9, 0.8, 1.0])}
    drawn = figures.plot_arms(
        {"one": values, "two": values}, {"one": 0.1, "two": 0.2}, {"a": "ffn", "b": "attention"}
    )
    for panel in (0, 1):
        dots = [x for x, _ in lines(drawn, panel) if len(x) == 3]
        assert [x.tolist() for x in dots] == [v.tolist() for v in values.values()]
        assert drawn.figure.axes[panel].get_xlabel().endswith(("one", "two")[panel])


def test_accuracy_over_length_has_each_seed_and_the_mean():
    values = np.array([[0.1, 0.5], [0.3, 0.7]])
    drawn = figures.plot_by_length((1, 8), {"a": values}, {"a": "ffn"}, trained=8, guess=0.125)
    rows = [y.tolist() for x, y in lines(drawn, 0) if x.tolist() == [1, 8]]
    assert rows == [[0.1, 0.5], [0.3, 0.7], pytest.approx([0.2, 0.6])]


def test_bars_of_parameters_are_their_shares():
    models = {name: whereabouts(model.count) for name, model in published().items()}
    drawn = figures.plot_whereabouts_of_models(models)
    bars = [bar.get_width() for bar in drawn.figure.axes[0].patches]
    assert len(bars) == 15
    for place, groups in enumerate(models.values()):
        whole = sum(groups.values())
        assert bars[5 * place : 5 * place + 5] == pytest.approx(
            [number / whole for number in groups.values()]
        )


def test_activations_and_approximations_are_drawn_as_they_are():
    drawn = figures.plot_activations()
    relu = next(y for x, y in lines(drawn, 0) if len(x) == 800)
    assert relu.min() == 0
    assert {float(v) for v in lines(drawn, 1)[0][1]} == {0.0, 1.0}
    errors = [np.abs(y).max() for x, y in lines(figures.plot_approximations(), 0) if len(x) == 2001]
    assert errors == pytest.approx([4.7e-4, 2.03e-2], rel=0.02)
