"""Figures of one layer draw the numbers that they are given."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from measured_book.evidence.results import load_results
from measured_book.rooms.one_layer import figures as one_layer
from measured_book.rooms.one_layer.measure import Cost, Strip, strips, toy_layer
from measured_transformer.viewer.style import COLOURS

RESULTS = load_results("one_layer")


def test_strips_have_a_cell_a_number_and_a_minus_below_zero():
    made = (
        Strip("input", "residual", False, ((1.0, -2.0),), (3, 2)),
        Strip("scores", "attention", True, ((0.5, -1.0, 0.0), (9.0, -0.1, 1.0)), (2, 3, 3)),
    )
    drawn = one_layer.plot_token_strips({"one": made})
    axes = drawn.figure.axes[0]
    cells = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_width() == 1]
    bands = [p for p in axes.patches if isinstance(p, Rectangle) and p.get_width() != 1]
    words = [text.get_text() for text in axes.texts]
    assert len(cells) == 8
    assert len(bands) == 1  # the row that mixes
    assert words.count("\N{MINUS SIGN}") == 3
    assert {"one", "input", "scores", "(3, 2)", "(2, 3, 3)"} <= set(words)
    lightness = [sum(cell.get_facecolor()[:3]) for cell in cells]
    assert lightness[1] < lightness[0]  # the larger number is stronger
    assert lightness[4] == pytest.approx(3)  # zero is paper
    assert drawn.light != drawn.dark


def test_two_kinds_stand_side_by_side():
    layers = {name: strips(*toy_layer(name), token=0) for name in ("2017", "today")}
    drawn = one_layer.plot_token_strips(layers)
    assert [axes.texts[0].get_text() for axes in drawn.figure.axes] == ["2017", "today"]
    assert len({axes.get_ylim() for axes in drawn.figure.axes}) == 1


def test_full_circles_stand_where_something_moves():
    drawn = one_layer.plot_who_mixes(RESULTS["mixing"], ("2017",))
    circles = drawn.figure.axes[0].get_lines()
    assert len(circles) == 28
    filled = [circle.get_markerfacecolor() != "none" for circle in circles]
    through, alone = filled[::2], filled[1::2]
    assert through == [False] * 3 + [True] * 11
    assert [place for place, moved in enumerate(alone) if moved] == [3, 5]  # scores and mixed
    assert circles[6].get_markerfacecolor() == COLOURS["attention"]
    with pytest.raises(ValueError, match="expected kinds among"):
        one_layer.plot_who_mixes(RESULTS["mixing"], ("tomorrow",))


def test_bars_are_shares_of_parameters():
    found = [
        Cost("queries", "attention", False, ((3, 4),), (2, 3, 2), 20, 100),
        Cost("norm 1", "norm", False, ((3, 4),), (3, 4), 5, 0),
        Cost("up", "ffn", False, ((3, 4),), (3, 8), 75, 300),
    ]
    drawn = one_layer.plot_costs({"one": found, "other": found[:1]})
    widths = [[bar.get_width() for bar in axes.patches] for axes in drawn.figure.axes]
    assert widths[0] == pytest.approx([0.2, 0.05, 0.75])
    assert widths[1] == [1.0]
    labels = [text.get_text() for text in drawn.figure.axes[0].get_yticklabels()]
    assert labels == ["queries", "norm 1", "up"]


def test_lines_show_each_seed_their_mean_and_the_formula():
    dropout = RESULTS["dropout"]
    drawn = one_layer.plot_kept_over_depth(dropout)
    lines = [np.asarray(line.get_ydata()) for line in drawn.figure.axes[0].get_lines()]
    behind = dropout.behind.sel(rate=0.1).transpose("seed", "sublayer").values
    for expected in (*behind, behind.mean(0), 0.9 ** np.arange(25), np.ones(25)):
        assert any(np.allclose(line, expected) for line in lines if len(line) == 25)
