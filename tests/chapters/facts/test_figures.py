"""Figures on facts draw the numbers that they are given."""

import numpy as np
from measured_transformer.chapters.facts import figures as facts


def lines(axes):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in axes.get_lines()
    ]


def test_neurons_stand_in_rows_and_facts_in_columns():
    written, learned = np.eye(3), np.arange(8.0).reshape(2, 4) / 7
    drawn = facts.plot_who_fires(written, learned)
    images = [axes.images[0].get_array() for axes in drawn.figure.axes[:2]]
    assert np.array_equal(images[0], written)
    assert np.array_equal(images[1], learned.T)
    assert drawn.light != drawn.dark


def test_recall_is_drawn_for_every_seed_with_its_mean():
    values = {"own": np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.2]]), "others": np.ones((2, 3))}
    drawn = facts.plot_recall_left(
        [0, 4, 16], values, {"own": "ffn", "others": "residual"}, judged=4
    ).figure.axes[0]
    shown = [y for _, y in lines(drawn) if len(y) == 3]
    for rows in values.values():
        for row in [*rows, rows.mean(0)]:
            assert any(np.allclose(row, y) for y in shown)
    assert any(np.array_equal(x, [1, 1]) for x, _ in lines(drawn)), "the judged number is marked"
    assert [tick.get_text() for tick in drawn.get_xticklabels()] == ["0", "4", "16"]


def test_each_kind_of_edit_has_a_panel_and_each_group_a_row():
    edits = {
        "least": {"same": np.array([0.1, 0.2]), "neither": np.array([0.0, 0.0])},
        "plain": {"same": np.array([0.4, 0.5]), "neither": np.array([0.2, 0.1])},
    }
    drawn = facts.plot_answers_lost(edits, {"least": "ffn", "plain": "residual"})
    assert len(drawn.figure.axes) == 2
    for axes, found in zip(drawn.figure.axes, edits.values(), strict=True):
        assert [tick.get_text() for tick in axes.get_yticklabels()] == list(found)
        for values in found.values():
            assert any(np.array_equal(x, values) for x, _ in lines(axes))


def test_shares_recalled_are_drawn_between_nothing_and_all():
    drawn = facts.plot_shares_recalled({"a": np.array([0.5, 0.7])}, {"a": "ffn"}).figure.axes[0]
    assert drawn.get_xlim()[0] == 0
    assert any(np.array_equal(x, [0.5, 0.7]) for x, _ in lines(drawn))
