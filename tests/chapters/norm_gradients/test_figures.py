"""Figures on gradients whose seeds lie powers of ten apart: one seed must not make the strong line."""

import numpy as np
import pytest
from measured_transformer.chapters.norm_gradients import figures

FAR = np.array([[1.0, 1e-4, 1e-6], [1.0, 1e-3, 1e-5], [1.0, 0.9, 0.8]])


@pytest.mark.parametrize("draw", [figures.lengths_by_block, figures.lengths_by_kind])
def test_the_strong_line_is_the_median(draw):
    name = "query" if draw is figures.lengths_by_kind else "step 0"
    axes = draw({"(a)": {name: FAR}, "(b)": {name: FAR}}).figure.axes[0]
    faint = [line for line in axes.get_lines() if line.get_alpha() is not None]
    (strong,) = (line for line in axes.get_lines() if line.get_alpha() is None)
    assert len(faint) == 3
    assert np.asarray(strong.get_ydata(), float) == pytest.approx([1.0, 1e-3, 1e-5])
    assert list(strong.get_xdata()) == [1, 2, 3]


def test_ratios_have_more_than_one_number_at_their_axis():
    rows = {"pre": np.full((2, 4), 3.0), "post": np.full((2, 4), 0.3)}
    axes = figures.ratios_by_depth(rows, (2, 6, 12, 24), (0.2, 1 / 3)).figure.axes[0]
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3


def test_no_ratio_of_a_largest_to_a_smallest_is_below_one():
    drawn = figures.spreads({"a": np.array([1.5, 4.0, 30.0])}, 2.0, {"a": "ffn"}, "ratio").figure
    assert drawn.axes[0].get_xlim()[0] == 1
