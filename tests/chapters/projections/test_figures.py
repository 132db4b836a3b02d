"""The figures on shared projections show every number and every seed."""

import numpy as np
from measured_transformer.chapters.projections import figures

RNG = np.random.default_rng(0)


def test_boards_show_their_numbers():
    table = np.array([[8.0, 4.25], [4.25, 1.0]])
    drawn = figures.plot_boards({"a": table, "b": table / 2}, ("x", "y"))
    first, second = ([t.get_text() for t in axes.texts] for axes in drawn.figure.axes)
    assert first == ["8", "4.25", "4.25", "1"]
    assert second == ["4", "2.12", "2.12", "0.50"]
    assert [axes.get_xlabel() for axes in drawn.figure.axes] == ["a", "b"]


def test_learning_shows_every_seed_and_the_prediction():
    steps = np.arange(4.0)
    arms = {name: RNG.uniform(size=(3, 4)) for name in ("separate", "shared")}
    drawn = figures.plot_learning(steps, {"one": arms, "two": arms}, predicted=0.54)
    for axes in drawn.figure.axes:
        lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
        for values in arms.values():
            for row in (*values, values.mean(0)):
                assert any(len(y) == 4 and np.allclose(y, row) for y in lines)
        assert any(np.allclose(y, 0.54) for y in lines)


def test_gaps_show_every_seed_and_the_margin():
    found = {t: {n: RNG.normal(size=5) for n in ("Q = K", "K = V")} for t in ("one", "two")}
    drawn = figures.plot_gaps(found, margin=0.02)
    for axes, groups in zip(drawn.figure.axes, found.values(), strict=True):
        lines = [np.asarray(line.get_xdata(), dtype=float) for line in axes.get_lines()]
        for values in groups.values():
            assert any(len(x) == 5 and np.allclose(x, values) for x in lines)
        assert any(np.allclose(x, -0.02) for x in lines)


def test_gaps_keep_to_the_seeds_where_two_of_them_make_a_wide_interval():
    found = {"one": {"Q = K": np.array([-0.14, -0.08]), "K = V": np.array([0.0, 0.01])}}
    low, high = figures.plot_gaps(found, margin=0.02).figure.axes[0].get_xlim()
    assert -0.3 < low < -0.14
    assert 0.01 < high < 0.2
