"""Figures on heads and relations draw what they are given: every arc, every distance, every seed."""

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from measured_transformer.chapters.heads_and_grammar import figures as relations

RNG = np.random.default_rng(0)


def test_each_arc_is_an_arrow_on_its_side():
    drawn = relations.plot_sentence_arcs(
        ["a", "b", "c"], {"agreement": [(2, 0)], "adjective": [(0, 1)]}
    )
    axes = drawn.figure.axes[0]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
    ends = [arrow._posA_posB for arrow in arrows]
    assert ends[0][0][0] < 0 < ends[1][0][0]
    assert (ends[0][0][1], round(ends[0][1][1])) == (2, 0)
    assert (ends[1][0][1], round(ends[1][1][1])) == (0, 1)
    assert drawn.dark != drawn.light


def test_distances_are_shares():
    found = {"agreement": [-1, -1, -1, -4], "adjective": [1, 2, 1, 1]}
    drawn = relations.plot_distances(found)
    for axes, expected in zip(
        drawn.figure.axes, ({-1: 0.75, -4: 0.25}, {1: 0.75, 2: 0.25}), strict=True
    ):
        bars = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in axes.patches}
        assert bars == pytest.approx(expected)
        assert [text.get_text() for text in axes.texts] == ["75%"]


def test_strips_and_removal_show_every_seed():
    panels = {"one": {"x": RNG.random(5), "y": RNG.random(5)}, "two": {"x": RNG.random(5)}}
    drawn = relations.plot_strips(panels, label="F1", reference=0.5)
    for axes, groups in zip(drawn.figure.axes, panels.values(), strict=True):
        points = np.concatenate([np.atleast_1d(line.get_xdata()) for line in axes.get_lines()])
        assert all(np.isclose(points, v).any() for values in groups.values() for v in values)
    curves = {"best first": RNG.random((3, 4)), "worst first": RNG.random((3, 4))}
    axes = relations.plot_removal([0, 1, 2, 4], curves).figure.axes[0]
    rows = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    for values in curves.values():
        for row in (*values, values.mean(0)):
            assert any(len(r) == 4 and np.allclose(r, row) for r in rows)
