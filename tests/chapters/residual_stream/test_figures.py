"""Every figure of the chapter draws what it is given: each seed, the right scale, nothing changed."""

import numpy as np
import pytest
from measured_transformer.chapters.residual_stream import figures
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
TABLE = np.exp(RNG.normal(size=(3, 5)))


def lines(drawn: ThemedFigure, panel: int = 0) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in drawn.figure.axes[panel].get_lines()]


def shows(drawn: ThemedFigure, row: np.ndarray, panel: int = 0) -> bool:
    return any(len(y) == len(row) and np.allclose(y, row) for y in lines(drawn, panel))


@pytest.mark.parametrize(
    ("drawn", "panel"),
    [
        (figures.plot_what_is_left(TABLE, TABLE / 2), 0),
        (figures.plot_paths(TABLE, (1, 2, 3, 4, 6), TABLE, TABLE[:, 0]), 0),
        (figures.plot_gradient_sizes({"a": (TABLE, TABLE), "b": (10**TABLE, 2 * 10**TABLE)}), 1),
        (figures.plot_collapse((10**TABLE, TABLE), {"a": TABLE[0], "b": TABLE[1]}, 0.2), 0),
        (figures.plot_growth({"a": (TABLE, "residual")}), 0),
        (figures.plot_steps(dict.fromkeys("abc", TABLE), dict.fromkeys("abc", TABLE)), 1),
        (figures.plot_cuts({"a": TABLE, "b": TABLE}, {"a": TABLE, "b": TABLE}), 0),
    ],
)
def test_every_seed_and_the_mean_are_drawn(drawn, panel):
    for row in (*TABLE, TABLE.mean(axis=0)):
        assert shows(drawn, row, panel)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark != drawn.light


def test_strips_show_every_seed():
    drawn = figures.plot_norm_put_back({"none": TABLE[0], "pre": TABLE[1], "post": TABLE[2]})
    xs = [np.asarray(line.get_xdata()) for line in drawn.figure.axes[0].get_lines()]
    for row in TABLE:
        assert any(len(x) == len(row) and np.allclose(x, row) for x in xs)
    drawn = figures.plot_writers({"one": TABLE[:, :2], "two": TABLE[:, 2:4]})
    names = [label.get_text() for label in drawn.figure.axes[0].get_yticklabels()]
    assert names == [
        f"{block}\n{part}" for block in ("one", "two") for part in ("attention", "feed-forward")
    ]


def test_growth_has_a_logarithmic_axis_with_plain_numbers():
    axes = figures.plot_growth({"a": (TABLE, "residual")}).figure.axes[0]
    assert axes.get_yscale() == "log"
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "0.5"


def test_by_hand_ends_where_the_sums_end():
    drawn = figures.plot_by_hand((3.0, 1.0), [(-1.0, 2.0), (1.0, 1.0)], [(0.8, 1.2), (0.9, 1.1)])
    left, right = drawn.figure.axes
    assert (left.get_lines()[-1].get_xdata()[0], left.get_lines()[-1].get_ydata()[0]) == (3, 4)
    assert (right.get_lines()[-1].get_xdata()[0], right.get_lines()[-1].get_ydata()[0]) == (
        0.9,
        1.1,
    )
