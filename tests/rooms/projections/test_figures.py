"""The figures on shared projections show every number and every seed."""

import numpy as np
from measured_book.rooms.projections import figures
from measured_book.rooms.projections.measure import ARMS, TASKS, kept_numbers
from xarray import Dataset

RNG = np.random.default_rng(0)


def test_boards_show_their_numbers():
    table = np.array([[8.0, 4.25], [4.25, 1.0]])
    drawn = figures.plot_boards({"a": table, "b": table / 2}, ("x", "y"))
    first, second = ([t.get_text() for t in axes.texts] for axes in drawn.figure.axes)
    assert first == ["8", "4.25", "4.25", "1"]
    assert second == ["4", "2.12", "2.12", "0.50"]
    assert [axes.get_xlabel() for axes in drawn.figure.axes] == ["a", "b"]


def test_learning_shows_every_seed_and_the_prediction():
    accuracy = RNG.uniform(size=(3, 2, 2, 4))
    one_head = Dataset(
        {"accuracy": (("seed", "layer", "tie", "step"), accuracy)},
        coords={"layer": ["with", "without"], "tie": ["none", "qk"], "step": [25, 50, 75, 100]},
    )
    drawn = figures.plot_learning(one_head, predicted=0.54)
    for i, axes in enumerate(drawn.figure.axes):
        lines = [np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()]
        for values in accuracy[:, i].swapaxes(0, 1):
            for row in (*values, values.mean(0)):
                assert any(len(y) == 4 and np.allclose(y, row) for y in lines)
        assert any(np.allclose(y, 0.54) for y in lines)


def test_gaps_show_every_seed_of_every_task_and_the_margin():
    assert list(figures.TASKS) == list(TASKS)
    accuracy = RNG.uniform(size=(5, 4, 4))
    ties = ["none", *figures.TIES]
    four = Dataset(
        {"accuracy": (("seed", "task", "tie"), accuracy)},
        coords={"task": list(figures.TASKS), "tie": ties},
    )
    drawn = figures.plot_gaps(four, margin=0.02)
    assert len(drawn.figure.axes) == 4
    for i, axes in enumerate(drawn.figure.axes):
        lines = [np.asarray(line.get_xdata(), dtype=float) for line in axes.get_lines()]
        for tie in (1, 2, 3):
            gaps = accuracy[:, i, tie] - accuracy[:, i, 0]
            assert any(len(x) == 5 and np.allclose(x, gaps) for x in lines)
        assert any(np.allclose(x, -0.02) for x in lines)


def test_schemes_have_a_row_each():
    [axes] = figures.plot_schemes().figure.axes
    texts = [text.get_text() for text in axes.texts]
    for name in ARMS:
        assert name in texts
    assert texts.count("q") == 20
    assert texts.count("k") == 4 + 2 + 1
    assert texts.count("k = v") == 4
    assert texts.count("c") == 1


def test_sharing_is_drawn_over_the_bytes_that_are_kept():
    loss = RNG.uniform(0.01, 1, size=(4, 5))
    kept = np.tile([kept_numbers(arm) for arm in ARMS], (4, 1))
    sharing = Dataset(
        {"loss": (("seed", "arm"), loss), "kept": (("seed", "arm"), kept)},
        coords={"arm": list(ARMS)},
    )
    [axes] = figures.plot_sharing(sharing).figure.axes
    assert {text.get_text() for text in axes.texts} == set(ARMS) == set(figures.SHARING)
    for i, arm in enumerate(ARMS):
        [dots] = [
            line
            for line in axes.get_lines()
            if len(np.ravel(line.get_ydata())) == 4 and np.allclose(line.get_ydata(), loss[:, i])
        ]
        np.testing.assert_allclose(dots.get_xdata(), 2 * kept_numbers(arm), rtol=0.1)
