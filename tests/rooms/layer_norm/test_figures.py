"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.layer_norm import figures

RESULTS = load_results("layer_norm")


def lines(drawn, panel=0):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in drawn.figure.axes[panel].get_lines()
    ]


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (figures.plot_changed, "text"),
        (figures.plot_stream, "text"),
        (lambda text: figures.plot_peaks(text, RESULTS["lone"]), "text"),
        (lambda text: figures.plot_variation(text, margin=0.1), "text"),
        (figures.plot_arms, "arms"),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, name):
    drawn = draw(RESULTS[name])
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_the_view_keeps_angles_of_the_page_and_sets_ones_upright():
    ((across, up),) = figures.seen_from(np.ones((1, 3)))
    assert across == pytest.approx(0)
    assert up > 1
    first, second = figures.seen_from(np.eye(3)).T
    assert first @ second == pytest.approx(0)
    assert np.linalg.norm(first) == pytest.approx(1) == np.linalg.norm(second)


def test_the_circle_lies_in_the_plane_and_the_point_on_it():
    drawn = figures.plot_plane_and_circle((4.0, 1.0, 1.0), (1.0, 2.0, 0.5))
    texts = [text.get_text() for text in drawn.figure.axes[0].texts]
    assert "(4, 1, 1)" in texts
    assert "(2, -1, -1)" in texts
    normed = np.array([2.0, -1, -1]) / np.sqrt(2)
    for panel, expected in ((0, normed), (1, normed * [1, 2, 0.5])):
        points = [np.ravel(found) for found in lines(drawn, panel) if found[0].size == 1]
        assert any(np.allclose(point, figures.seen_from(expected)) for point in points)
    circles = [np.stack(found).T for found in lines(drawn) if found[0].size == 200]
    gaps = np.linalg.norm(circles[0] - figures.seen_from(normed), axis=1)
    assert gaps.min() < 0.05


def test_every_seed_is_a_line_or_a_dot():
    text, arms = RESULTS["text"], RESULTS["arms"]
    shifted = lines(figures.plot_changed(text))
    drawn = [y for x, y in shifted if x.size == text.sizes["shift"]]
    for norm in text.norm.values:
        for values in text.shifted.sel(norm=norm).transpose("seed", "shift").values:
            assert any(np.allclose(values, y) for y in drawn)
    panels = figures.plot_arms(arms)
    for place, arm in enumerate(arms.arm.values):
        drawn = [y for x, y in lines(panels, place) if x.size == arms.sizes["rate"]]
        for values in arms.excess.sel(arm=arm).transpose("seed", "rate").values:
            assert any(np.allclose(values, y) for y in drawn)
    dots = [
        x
        for x, _ in lines(figures.plot_variation(text, margin=0.1))
        if x.size == text.sizes["seed"]
    ]
    assert len(dots) == text.sizes["reader"]
