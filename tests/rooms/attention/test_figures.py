"""The figures of the chapter on attention show the numbers that they are given."""

import numpy as np
from matplotlib.colors import to_hex
from measured_book.evidence.results import load_results
from measured_book.rooms.attention import figures
from measured_transformer.viewer.style import COLOURS, ThemedFigure

WORDS = ("red", "round", "ball")
RESULTS = load_results("attention")
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


def test_the_path_of_what_is_fetched_is_drawn_among_the_values():
    values = np.array([[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    cloud = np.random.default_rng(0).uniform(size=(9, 2))
    factors = np.array([0.25, 1.0, 4.0])
    drawn = figures.plot_temperature(
        WORDS, values, factors, WEIGHTS, cloud, marked=(0.25, 4.0), axis_names="xy"
    )
    left, right = drawn.figure.axes
    for column in range(3):
        assert any(np.array_equal(line.get_ydata(), WEIGHTS[:, column]) for line in left.lines)
    lines = [np.array(line.get_xydata()) for line in right.lines]
    path = WEIGHTS @ values
    for points in (path, cloud, path[:1], path[2:]):
        assert any(np.array_equal(line, points) for line in lines)
    assert {r"$\times$ 1/4", r"$\times$ 4"} <= set(texts(drawn, 1))


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


def test_kinds_draw_a_line_as_wide_as_its_weight_for_every_allowed_pair():
    mask = np.tri(3, dtype=bool)
    weights = np.array([[1.0, 0, 0], [0.25, 0.75, 0], [0.1, 0.3, 0.6]])
    drawn = figures.plot_kinds([figures.Kind("causal", WORDS, WORDS, mask, weights)])
    links, board = drawn.figure.axes
    widths = [line.get_linewidth() for line in links.get_lines()]
    assert np.argsort(widths).tolist() == np.argsort(weights[mask]).tolist()
    shown = [text.get_text() for text in board.texts]
    assert shown == ["1.00", "-", "-", "0.25", "0.75", "-", "0.10", "0.30", "0.60"]
    assert drawn.dark != drawn.light


def test_the_errors_of_smoothers_are_those_that_were_measured():
    smoothing = RESULTS["smoothing"]
    x = np.linspace(0, 1, 5)
    drawn = figures.plot_kernel(x, x**2, x, {"0.3": x, "0.1": 2 * x}, smoothing)
    left, right = drawn.figure.axes
    assert [line.get_label() for line in left.lines][1:] == ["0.3", "0.1"]
    means = smoothing.error.mean("seed").transpose("smoother", "coordinates").values
    strong = [np.array(line.get_ydata()) for line in right.lines if line.get_linewidth() > 1]
    np.testing.assert_allclose(strong, means)
    assert len(right.lines) == len(strong) * (1 + smoothing.sizes["seed"])


def test_every_training_on_dice_is_a_hollow_and_a_filled_dot():
    dice = RESULTS["dice"]
    drawn = figures.plot_dice(dice, floor=np.log(6))
    _, right = drawn.figure.axes
    dots = [line for line in right.lines if line.get_marker() == "o"]
    hollow = [np.array(d.get_xdata()) for d in dots if d.get_markerfacecolor() == "none"]
    filled = [np.array(d.get_xdata()) for d in dots if d.get_markerfacecolor() != "none"]
    np.testing.assert_array_equal(np.array(hollow).T, dice.whole.values)
    np.testing.assert_array_equal(np.array(filled).T, dice.alone.values)
