"""Figures on models without norms draw what they are given, and tell stopped runs from those that finished."""

import numpy as np
from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.without_norms import figures
from measured_transformer.chapters.without_norms.figures import plot_success_map

RNG = np.random.default_rng(0)
SOON = Solved(np.array([20.0, 30.0, 60.0]), np.array([True, True, False]))
NEVER = Solved(np.array([60.0, 60.0]), np.array([False, False]))


def lines(axes):
    return [
        (np.asarray(x.get_xdata(), float), np.asarray(x.get_ydata(), float), x)
        for x in axes.get_lines()
    ]


def test_growth_shows_every_seed_from_the_embedding_on():
    sizes = {"none": np.exp(RNG.normal(size=(3, 5))), "scaled": np.exp(RNG.normal(size=(2, 5)))}
    axes = figures.plot_growth(sizes).figure.axes[0]
    drawn = [y for x, y, _ in lines(axes) if list(x) == [0, 1, 2, 3, 4]]
    for found in sizes.values():
        for row in found:
            assert any(np.allclose(row, y) for y in drawn)
    assert axes.get_yscale() == "log"


def test_dimensions_have_a_row_an_arm_and_the_stated_ratio():
    rows = {"a": np.array([0.5, 1.0]), "b": np.array([0.0, 0.0])}
    axes = figures.plot_dimension_strip(rows, 100.0).figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert any(np.allclose(x, 2) for x, _, _ in lines(axes) if len(x) == 2)
    assert any(np.allclose(x, [0.5, 1.0]) for x, _, _ in lines(axes) if len(x) == 2)


def test_depth_draws_shares_and_open_marks_for_stopped_runs():
    found = {"none": [SOON, NEVER], "none-zero": [SOON]}
    top, bottom = figures.plot_success_by_depth(
        found, {"none": (2, 12), "none-zero": (12,)}
    ).figure.axes
    assert any(np.allclose(y, [2 / 3, 0]) for _, y, _ in lines(top) if len(y) == 2)
    opened = [list(y) for _, y, line in lines(bottom) if line.get_markerfacecolor() == "none"]
    assert sorted(opened) == [[60.0], [60.0], [60.0, 60.0]]


def test_substitutes_have_a_row_an_arm_and_stand_at_the_end_when_stopped():
    axes = figures.plot_substitutes_strip({"tanh": NEVER, "fixup": SOON}, 80).figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [figures.NAMES["tanh"], figures.NAMES["fixup"]]
    marks = {
        (line.get_markerfacecolor() == "none", tuple(x)) for x, _, line in lines(axes) if len(x)
    }
    assert {(True, (80.0, 80.0)), (True, (80.0,)), (False, (20.0, 30.0))} <= marks


def test_map_has_a_number_in_each_cell_that_was_trained():
    counts = {
        "a": np.array([[2.0, np.nan], [0.0, 1.0]]),
        "b": np.array([[np.nan, 2.0], [2.0, 2.0]]),
    }
    axes = plot_success_map(counts, (2, 6), (0.001, 0.01), 2).figure.axes
    for panel, found in zip(axes, counts.values(), strict=True):
        written = {text.get_position(): text.get_text() for text in panel.texts}
        assert written == {
            (j, i): f"{number:.0f}" if np.isfinite(number) else "-"
            for (i, j), number in np.ndenumerate(found)
        }
        assert [label.get_text() for label in panel.get_xticklabels()] == ["0.001", "0.01"]
    assert axes[0].get_title(loc="left") == "a"
