"""The figures of the chapter on attention show the numbers that they are given."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from measured_transformer.chapters.attention import figures
from measured_transformer.figures.style import COLOURS, ThemedFigure

WORDS = ("red", "round", "ball")
WEIGHTS = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]])


def texts(drawn: ThemedFigure, panel: int) -> list[str]:
    return [text.get_text() for text in drawn.figure.axes[panel].texts]


def test_the_example_shows_scores_weights_and_the_average():
    queries, keys = np.diag([4.0, 2.0, 6.0]), np.diag([1.0, 1.0, 3.0])
    values = np.array([[3.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    drawn = figures.plot_by_hand(
        WORDS, queries, keys, values, WEIGHTS, asking=2, kinds="abc", contents="xy"
    )
    assert f"{18 / 3**0.5:.2f}" in texts(drawn, 0)
    assert {"0.60", "0.30", "0.10", "1.90", "what ball gets"} <= set(texts(drawn, 1))
    assert drawn.dark != drawn.light


def test_the_hull_shows_values_outputs_and_cloud():
    values = np.array([[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    cloud = np.random.default_rng(0).uniform(size=(9, 2))
    drawn = figures.plot_hull(WORDS, values, WEIGHTS @ values, cloud, axis_names="xy")
    lines = [np.array(line.get_xydata()) for line in drawn.figure.axes[0].get_lines()]
    for points in (values, WEIGHTS @ values, cloud):
        assert any(np.array_equal(line, points) for line in lines)


def test_budgets_are_stacked():
    scores = np.linspace(0, 1, 3)
    drawn = figures.plot_budget(scores, WEIGHTS, 2 * WEIGHTS, WORDS, moved="round")
    tops = [line.get_ydata() for line in drawn.figure.axes[1].get_lines()]
    np.testing.assert_allclose(tops, 2 * WEIGHTS.cumsum(1).T)


def test_masks_are_filled_where_a_look_is_allowed():
    mask = np.array([[True, False, False], [True, True, False], [True, True, True]])
    drawn = figures.plot_masks({"a": mask, "b": mask.T}, WORDS)
    for axes, shown in zip(drawn.figure.axes, (mask, mask.T), strict=True):
        filled = [
            to_hex(patch.get_facecolor(), keep_alpha=True) == COLOURS["attention"] + "ff"
            for patch in axes.patches
        ]
        np.testing.assert_array_equal(np.reshape(filled, (3, 3)), shown)


@pytest.mark.parametrize("weights", [None, np.array([0.2, 0.8, 0.0])])
def test_kinds_draw_a_line_for_every_allowed_pair(weights):
    mask = np.tri(3, dtype=bool)
    drawn = figures.plot_kinds([figures.Kind("decoder", WORDS, WORDS, mask, 1, weights)])
    (axes,) = drawn.figure.axes
    strong = [line for line in axes.get_lines() if to_hex(line.get_color()) == COLOURS["attention"]]
    assert len(axes.get_lines()) == 6
    assert len(strong) == 2
    if weights is not None:
        assert strong[1].get_linewidth() > strong[0].get_linewidth()
        assert {"0.20", "0.80"} <= set(texts(drawn, 0))
        assert "0.00" not in texts(drawn, 0)
