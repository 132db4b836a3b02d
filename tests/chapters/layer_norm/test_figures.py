"""Figures of norms draw the numbers that they are given."""

import numpy as np
import pytest
from measured_transformer.chapters.layer_norm import figures as norms
from measured_transformer.chapters.layer_norm.measure import (
    NormRun,
    size_by_definition,
    size_outside,
)


def lines(drawn, panel=0):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in drawn.figure.axes[panel].get_lines()
    ]


def test_the_view_keeps_angles_of_the_page_and_sets_ones_upright():
    ((across, up),) = norms.seen_from(np.ones((1, 3)))
    assert across == pytest.approx(0)
    assert up > 1
    first, second = norms.seen_from(np.eye(3)).T
    assert first @ second == pytest.approx(0)
    assert np.linalg.norm(first) == pytest.approx(1) == np.linalg.norm(second)


def test_the_circle_lies_in_the_plane_and_the_point_on_it():
    drawn = norms.plot_plane_and_circle((4.0, 1.0, 1.0), (1.0, 2.0, 0.5))
    texts = [text.get_text() for text in drawn.figure.axes[0].texts]
    assert "(4, 1, 1)" in texts
    assert "(2, -1, -1)" in texts
    normed = np.array([2.0, -1, -1]) / np.sqrt(2)
    for panel, expected in ((0, normed), (1, normed * [1, 2, 0.5])):
        points = [np.ravel(found) for found in lines(drawn, panel) if found[0].size == 1]
        assert any(np.allclose(point, norms.seen_from(expected)) for point in points)
    circles = [np.stack(found).T for found in lines(drawn) if found[0].size == 200]
    gaps = np.linalg.norm(circles[0] - norms.seen_from(normed), axis=1)
    assert gaps.min() < 0.05


def test_measured_dots_lie_on_the_curves_of_the_trap():
    widths, scales = [2, 8, 64], np.geomspace(1e-7, 1, 8)
    outputs = {"definition": size_by_definition(scales, eps=1e-5),
               "code": size_outside(scales, d_model=64, eps=1e-5)}  # fmt: skip
    drawn = norms.plot_epsilon_trap(
        widths, np.sqrt(1 - 1 / np.array(widths)), scales, outputs, d_model=64, eps=1e-5
    )
    curve, dots = lines(drawn)[:2]
    np.testing.assert_allclose(np.interp(dots[0], *curve), dots[1], atol=2e-3)
    below = lines(drawn, 1)
    assert [len(x) for x, _ in below] == [300, 8, 300, 8]
    np.testing.assert_allclose(below[1][1], outputs["definition"])
    np.testing.assert_allclose(below[3][1], outputs["code"])


def test_zeros_lie_on_the_floor():
    drawn = norms.plot_what_passes({"plain": np.array([1.0, 0.5, 1e-17])}, {"plain": "norm"})
    assert lines(drawn)[0][1].tolist() == [1.0, 0.5, 1e-3]


def test_every_seed_is_a_dot():
    values = {"first": np.array([0.1, 0.2, 0.3]), "second": np.array([0.2, 0.2, 0.5])}
    tokens = np.random.default_rng(0).uniform(1, 3, (3, 4000))
    drawn = norms.plot_constant_or_not(values, tokens, margin=0.1)
    dots = [x for x, _ in lines(drawn) if x.size == 3]
    np.testing.assert_allclose(dots, np.stack(list(values.values())))
    curves = [(x, y) for x, y in lines(drawn, 1) if x.size == 40]
    assert len(curves) == 4, "three seeds and their mean"
    for x, density in curves:  # evenly from a half to one and a half times the mean of two
        assert density.sum() * (x[1] - x[0]) == pytest.approx(1)
        assert density[(x < 0.45) | (x > 1.55)].max() == 0
    drawn = norms.plot_quality(values, label="loss")
    assert [x.size for x, _ in lines(drawn)].count(3) == 2
    drawn = norms.plot_quality(values | {"third": np.array([1.0, 1.1, 1.2])}, label="loss")
    assert [x.size for x, _ in lines(drawn)].count(3) == 3
    with pytest.raises(ValueError, match="two or three rows, got 1"):
        norms.plot_quality({"first": values["first"]}, label="loss")


def test_times_are_ratios():
    rows = [
        {"name": f"{name}{end}", "width": width, "tokens": 2, "passes": "forward, backward",
         "each": [seconds * width] * 3}
        for width in (8, 16)
        for name, seconds in (("LayerNorm", 2.0), ("RMSNorm", 1.0))
        for end in ("", ", written out")
    ]  # fmt: skip
    drawn = norms.plot_times_over_widths(NormRun({}, 3, rows))
    marked = [y for _, y in lines(drawn) if len(y) == 2 and not np.allclose(y, 1)]
    assert marked
    assert all(np.allclose(y, 0.5) for y in marked)
