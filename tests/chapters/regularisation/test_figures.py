"""Every figure of the chapter draws what it is given: each seed, each mask, each bin."""

import numpy as np
import pytest
from measured_transformer.chapters.regularisation import figures
from measured_transformer.chapters.regularisation.measure import reliability
from measured_transformer.figures.style import ThemedFigure

TABLE = np.abs(np.random.default_rng(0).normal(size=(3, 4))) + 0.1
STEPS = np.array([10, 20, 30, 40])


def shows(drawn: ThemedFigure, row: np.ndarray, panel: int = 0) -> bool:
    lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[panel].get_lines()]
    return any(len(y) == len(row) and np.allclose(y, row) for y in lines)


@pytest.mark.parametrize(
    ("drawn", "panel"),
    [
        (figures.plot_noise(TABLE, 2 * TABLE, 0.1), 0),
        (
            figures.plot_curves(
                STEPS,
                {"a": {"none": 3 * TABLE}, "b": {"none": TABLE}},
                dict.fromkeys("ab", TABLE),
                0.4,
            ),
            1,
        ),
        (figures.plot_metrics([0.0, 0.1, 0.2, 0.3], {"a": 2 * TABLE, "b": TABLE}), 1),
    ],
)
def test_every_seed_and_the_mean_are_drawn(drawn, panel):
    for row in (*TABLE, TABLE.mean(axis=0)):
        assert shows(drawn, row, panel)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark != drawn.light


def test_noise_has_the_formula_beside_it():
    drawn = figures.plot_noise(TABLE, TABLE, 0.1)
    assert shows(drawn, 0.9 ** -np.arange(1.0, 5) - 1)


def test_gains_show_every_seed_and_name_every_row():
    drawn = figures.plot_gains(
        {"small": {"0.1": TABLE[0], "0.3": TABLE[1]}, "fresh": {"0.1": TABLE[2]}}, label="x"
    )
    axes = drawn.figure.axes[0]
    xs = [np.asarray(line.get_xdata()) for line in axes.get_lines()]
    assert all(any(len(x) == 4 and np.allclose(x, row) for x in xs) for row in TABLE)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["small, 0.1", "small, 0.3", "fresh, 0.1"]


def test_by_hand_shows_the_first_mask_and_all_of_them():
    outputs = np.array([[0.0, 4.0], [2.0, 0.0], [0.0, 0.0], [2.0, 4.0]])
    above, below = figures.plot_by_hand(
        np.array([1.0, 2.0]), outputs, np.array([1.0, 2.0])
    ).figure.axes
    assert sorted(bar.get_height() for bar in above.patches) == [0, 1, 2, 4]
    assert [text.get_text() for text in above.texts] == ["x"]
    drawn = [list(line.get_ydata()) for line in below.get_lines()]
    assert all(row in drawn for row in outputs.tolist())


def test_every_place_has_its_number():
    texts = [text.get_text() for text in figures.plot_places().figure.axes[0].texts]
    assert {"1", "2", "3", "4", "5"} <= set(texts)


def test_targets_are_bars_of_the_given_height():
    rows = {"0": np.array([0.0, 1.0]), "0.2": np.array([0.1, 0.9])}
    bars = figures.plot_targets("AB", rows).figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == [0.0, 1.0, 0.1, 0.9]


def test_reliability_is_drawn_where_there_are_answers():
    found = reliability([0.95, 0.85, 0.85], [True, True, False])
    axes = figures.plot_reliabilities({"a": {"none": found}, "b": {"none": found}}).figure.axes
    for panel in axes:
        (points,) = panel.collections
        assert np.allclose(points.get_offsets(), [[0.85, 0.5], [0.95, 1.0]])
        small, large = sorted(points.get_sizes())
        assert large > small
