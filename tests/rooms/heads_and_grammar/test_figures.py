"""Figures on heads and relations draw what they are given: every arc, every distance, every seed."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from measured_book.evidence.results import load_results
from measured_book.rooms.heads_and_grammar import figures
from measured_book.rooms.heads_and_grammar.measure import ARROWS, SENTENCE
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("heads_and_grammar")
DRAWN = {
    "plot_sentence_arcs": lambda: figures.plot_sentence_arcs(SENTENCE, ARROWS),
    "plot_one_word_too_late": lambda: figures.plot_one_word_too_late(
        SENTENCE, RESULTS["sentence"], subject=2
    ),
    "plot_distances": lambda: figures.plot_distances(RESULTS["distances"]),
    "plot_scores": lambda: figures.plot_scores(
        RESULTS["found"], "decoder", ["agreement", "reference"]
    ),
    "plot_roles": lambda: figures.plot_roles(RESULTS["roles"]),
    "plot_cuts": lambda: figures.plot_cuts(RESULTS["cuts"]),
    "plot_falls": lambda: figures.plot_falls(RESULTS["cuts"]),
}
IN_WORDS = {"plot_sentence_arcs", "plot_one_word_too_late"}
"""What has words in place of axes."""


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert drawn.width == 640
    labels = [axes.get_xlabel() for axes in drawn.figure.axes if axes.axison]
    assert any(labels) or name in IN_WORDS


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_arrows_back_are_above_the_words_and_those_ahead_below() -> None:
    drawn = figures.plot_sentence_arcs(
        ["a", "bcd", "e"], {"agreement": [(2, 0)], "adjective": [(0, 1)]}
    )
    axes = drawn.figure.axes[0]
    back, ahead = (p._posA_posB for p in axes.patches if isinstance(p, FancyArrowPatch))
    at = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert at["a"] < at["bcd"] < at["e"]
    assert (back[0][0], back[1][0]) == (at["e"], at["a"])
    assert (ahead[0][0], ahead[1][0]) == (at["a"], at["bcd"])
    assert back[0][1] > 0 > ahead[0][1]
    middle = [p.get_path().vertices[:, 1] for p in axes.patches]
    assert max(middle[0]) > 0.5
    assert min(middle[1]) < -0.5


def test_distances_are_mean_shares() -> None:
    drawn = figures.plot_distances(RESULTS["distances"])
    shares = RESULTS["distances"].share.mean("seed")
    for axes, relation in zip(drawn.figure.axes, shares.relation.values, strict=True):
        heights = [bar.get_height() for bar in axes.patches]
        assert heights == pytest.approx(shares.sel(relation=relation).values)


def test_scores_and_cuts_show_every_seed() -> None:
    found, cuts = RESULTS["found"], RESULTS["cuts"]
    drawn = figures.plot_scores(found, "encoder", ["adjective"])
    for axes, where in zip(drawn.figure.axes, ("read", "predicted"), strict=True):
        points = np.concatenate([np.atleast_1d(line.get_xdata()) for line in axes.get_lines()])
        for value in found.f1.sel(reader="encoder", view=where, relation="adjective").values.flat:
            assert np.isclose(points, value).any()
    panels = figures.plot_cuts(cuts).figure.axes
    rows = [np.asarray(line.get_ydata(), float) for line in panels[1].get_lines()]
    for values in cuts.odds.sel(reader="decoder").transpose("seed", "order", "removed").values:
        for row in values:
            assert any(len(r) == len(row) and np.allclose(r, row) for r in rows)
