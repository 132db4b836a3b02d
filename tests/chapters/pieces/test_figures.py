"""Figures on pieces that are left out draw every seed they are given, in the place where it belongs."""

import numpy as np
import pytest
from measured_transformer.chapters.pieces import figures
from measured_transformer.figures.style import COLOURS
from measured_transformer.variants.component_ablation import PIECES

RNG = np.random.default_rng(0)


def lines(axes):
    return [
        (np.asarray(x.get_xdata(), float), np.asarray(x.get_ydata(), float), x)
        for x in axes.get_lines()
    ]


def test_every_piece_has_a_name_and_a_colour():
    assert set(figures.NAMES) == set(figures.CONCEPTS) == {"whole", "both", *PIECES}
    assert len(set(figures.CONCEPTS.values())) == len(figures.CONCEPTS)
    assert all(concept in COLOURS for concept in figures.CONCEPTS.values())


def test_six_models_are_drawn_and_named():
    panels = figures.plot_five_models().figure.axes
    assert len(panels) == 6
    written = [{text.get_text() for text in axes.texts} for axes in panels]
    titles = [axes.get_title() for axes in panels]
    assert titles[0] == "whole"
    for piece in ("attention", "positions", "feed-forward"):
        at = titles.index(f"without {piece}")
        assert piece not in written[at]
        assert all(piece in found for i, found in enumerate(written) if i != at)
    assert "norm" not in written[titles.index("without norms")]


def test_ranking_sorts_by_the_mean_and_shows_the_floors():
    losses = {
        "reversal": {"whole": np.array([0.1, 0.3]), "skip": np.array([1.0, 1.4])},
        "text": {"skip": np.array([0.2, 0.2]), "whole": np.array([2.0, 3.0])},
    }
    floors = {"reversal": {"at best": 1.7, "bag": 1.2}, "text": {"at best": 2.4}}
    top, bottom = figures.plot_ranking(losses, floors).figure.axes
    assert [t.get_text() for t in top.get_yticklabels()] == ["nothing", "skip connections"]
    assert [t.get_text() for t in bottom.get_yticklabels()] == ["skip connections", "nothing"]
    for axes, task in ((top, "reversal"), (bottom, "text")):
        for found in losses[task].values():
            assert any(np.array_equal(x, found) for x, _, _ in lines(axes))
        for loss in floors[task].values():
            assert any(len(x) == 2 and np.allclose(x, loss) for x, _, _ in lines(axes))


def test_curves_are_averages_over_steps():
    found = RNG.uniform(size=(3, 25))
    (axes,) = figures.plot_learning_curves({"text": {"norm": found}}, over=10).figure.axes
    wanted = np.stack([found[:, :10].mean(1), found[:, 10:20].mean(1)], axis=1)
    for row in (*wanted, wanted.mean(0)):
        assert any(np.allclose(y, row) for _, y, _ in lines(axes) if len(y) == 2)
    assert any(np.allclose(x, [5, 15]) for x, _, _ in lines(axes) if len(x) == 2)


def test_rises_stand_by_layer_and_beside_them_the_models_built_without():
    rises = {"text": {part: RNG.uniform(size=(4, 3)) for part in ("attention", "ffn")}}
    built = {"text": {part: RNG.uniform(size=4) for part in ("attention", "ffn")}}
    (axes,) = figures.plot_taken_away(rises, built).figure.axes
    labels = [t.get_text() for t in axes.get_xticklabels()]
    assert labels == ["layer 1", "layer 2", "all layers", "built\nwithout"]
    for part, shift in (("attention", -1), ("ffn", 1)):
        columns = [*rises["text"][part].T, built["text"][part]]
        for at, column in enumerate(columns):
            (x,) = [x for x, y, _ in lines(axes) if len(y) == 4 and np.array_equal(y, column)]
            assert round(float(x.mean())) == at
            assert np.sign(x.mean() - at) == shift


@pytest.mark.parametrize("seeds", [1, 3])
def test_widths_draw_trained_fresh_and_expected(seeds):
    at, between = [0.25, 1.0, 4.0], [0.5, 1.0]
    trained, fresh = RNG.uniform(0.3, 2, (seeds, 2)), RNG.uniform(0.3, 2, (seeds, 3))
    expected = np.array([0.7, 1.0, 0.7])
    axes = figures.plot_writes_by_width((between, trained), (at, fresh), expected).figure.axes[0]
    for where, rows in ((between, trained), (at, [*fresh, expected])):
        drawn = [y for x, y, _ in lines(axes) if list(x) == where]
        assert all(any(np.allclose(row, y) for y in drawn) for row in rows)
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_two_ways_each_have_their_own_ratios():
    ways = {
        "a": ([0.5, 1.0, 2.0], RNG.uniform(0.5, 1, (2, 3))),
        "b": ([0.25, 4.0], RNG.uniform(0.5, 1, (2, 2))),
    }
    axes = figures.plot_two_ways(ways).figure.axes[0]
    for at, found in ways.values():
        for row in found:
            assert any(list(x) == at and np.allclose(y, row) for x, y, _ in lines(axes))
