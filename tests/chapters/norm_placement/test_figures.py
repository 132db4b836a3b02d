"""Figures on where the norm stands draw what they are given, and tell stopped runs from those that finished."""

import numpy as np
from measured_transformer.analysis.solving import Solved
from measured_transformer.chapters.norm_placement import figures

RNG = np.random.default_rng(0)
SOON = Solved(np.array([20.0, 30.0, 60.0]), np.array([True, True, False]))
LATE = Solved(np.array([50.0, 55.0, 60.0]), np.array([True, True, True]))
TABLE = np.exp(RNG.normal(size=(3, 4)))


def lines(axes):
    return [
        (np.asarray(x.get_xdata(), float), np.asarray(x.get_ydata(), float), x)
        for x in axes.get_lines()
    ]


def shows(axes, row):
    return any(len(y) == len(row) and np.allclose(y, row) for _, y, _ in lines(axes))


def test_the_map_has_a_number_in_each_cell_and_a_panel_an_arm():
    counts = {"one": np.array([[0, 1, 5], [2, 3, 4]]), "two": np.array([[5, 5, 5], [0, 0, 0]])}
    drawn = figures.success_map(counts, (2, 12), (1e-3, 3e-3, 1e-2), 5).figure
    for axes, (title, found) in zip(drawn.axes, counts.items(), strict=True):
        assert axes.get_title(loc="left") == title
        assert [text.get_text() for text in axes.texts] == [str(n) for n in found.ravel()]
        assert np.allclose(axes.images[0].get_array(), found / 5)
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["2", "12"]
    assert [label.get_text() for label in drawn.axes[1].get_xticklabels()] == [
        "0.001",
        "0.003",
        "0.01",
    ]


def test_an_odd_number_of_arms_leaves_the_last_panel_out():
    counts = dict.fromkeys("abc", np.zeros((2, 2), dtype=int))
    drawn = figures.success_map(counts, (2, 12), (1e-3, 1e-2), 5).figure
    assert [axes.get_visible() for axes in drawn.axes] == [True, True, True, False]


def test_survival_is_the_estimate_at_every_step():
    drawn = figures.still_at_it({"two blocks": {"pre": SOON, "post": LATE}}, 60).figure
    at = np.arange(61.0)
    assert shows(drawn.axes[0], SOON.still_at_it(at))
    assert shows(drawn.axes[0], LATE.still_at_it(at))


def test_the_one_legend_of_the_survival_curves_names_the_arms_of_every_panel():
    panels = {"two": {"pre": SOON}, "twelve": {"pre": SOON, "sandwich": LATE}}
    drawn = figures.still_at_it(panels, 60).figure
    (legend,) = [axes.get_legend() for axes in drawn.axes if axes.get_legend()]
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == [figures.NAMES["pre"], figures.NAMES["sandwich"]]


def test_depth_curves_draw_stopped_runs_open():
    found = {"pre": [SOON, LATE], "deep": [LATE]}
    drawn = figures.success_by_depth(found, {"pre": (2, 12), "deep": (12,)}).figure
    assert shows(drawn.axes[0], [SOON.share, 1.0])
    marks = [(x, y, line.get_markerfacecolor()) for x, y, line in lines(drawn.axes[1]) if len(y)]
    opened = [(float(x[0]), list(y)) for x, y, face in marks if face == "none"]
    assert opened == [(2.0, [60.0])]


def test_logits_are_drawn_for_every_seed():
    drawn = figures.logits_by_depth(TABLE, 2 * TABLE, (2, 4, 6, 12)).figure
    for row in (*TABLE, *(2 * TABLE)):
        assert shows(drawn.axes[0], row)
    assert (drawn.axes[0].get_xscale(), drawn.axes[0].get_yscale()) == ("log", "log")
