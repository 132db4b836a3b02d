"""Figures on very deep models draw every seed of what they are given."""

import numpy as np
from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.very_deep.figures import (
    plot_success_over_depth,
    plot_through_the_blocks,
)

RNG = np.random.default_rng(0)


def test_both_panels_show_every_seed_and_placement():
    apart = {name: np.exp(RNG.normal(size=(3, 5))) for name in ("pre", "post", "deep")}
    turn = {name: np.exp(RNG.normal(size=(3, 4))) for name in ("pre", "post", "deep")}
    top, bottom = plot_through_the_blocks(apart, turn).figure.axes
    assert top.get_yscale() == "log"
    for axes, given, first in ((top, apart, 0), (bottom, turn, 1)):
        drawn = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
        for values in given.values():
            for row in (*values, values.mean(0)):
                assert any(len(y) == len(row) and np.allclose(y, row) for y in drawn)
        assert {line.get_xdata()[0] for line in axes.get_lines()} == {first}
    names = [text.get_text() for text in top.get_legend().get_texts()]
    assert names == ["pre-norm", "post-norm", "DeepNorm"]


def test_each_run_has_a_mark_of_its_own_open_where_it_was_stopped():
    done = Solved(np.array([40.0, 50.0, 50.0]), np.array([True, True, True]))
    mixed = Solved(np.array([90.0, 150.0, 150.0]), np.array([True, False, False]))
    found, depths = {"pre": [done], "post": [done, mixed]}, {"pre": (24,), "post": (2, 24)}
    shares, steps = plot_success_over_depth(found, depths).figure.axes
    assert [list(line.get_ydata()) for line in shares.get_lines()] == [[1.0], [1.0, 1 / 3]]
    marks = [
        (x, y, line.get_markerfacecolor() == "none")
        for line in steps.get_lines()
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]
    assert len(marks) == len(set(marks)) == 9
    assert sorted(y for _, y, stopped in marks if stopped) == [150.0, 150.0]
    assert sorted(y for _, y, _ in marks) == [40.0] * 2 + [50.0] * 4 + [90.0] + [150.0] * 2
    assert all(1.6 < x < 2.4 or 20 < x < 29 for x, *_ in marks)
    assert steps.get_ylim()[0] == 0
