"""Excess loss by position is drawn where something is scored, every seed, in both themes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from measured_transformer.chapters.extrapolation.figures import (
    plot_beyond_panels,
    plot_extrapolation,
)
from measured_transformer.figures.style import ThemedFigure


def rising(seeds: int) -> np.ndarray:
    """Nothing scored at two places and once more at the fourth, then the number of the place."""
    places = np.arange(64.0)
    places[[0, 1, 3]] = np.nan
    return places[None].repeat(seeds, 0)


def lines(axes: Axes) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) > 2]


def test_every_seed_is_shown_from_where_all_is_scored() -> None:
    drawn = plot_extrapolation({"rotary": rising(3)}, trained=16, chance=1.0, smooth=4)
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light != drawn.dark
    shown = lines(drawn.figure.axes[0])
    assert len(shown) == 4  # three seeds and their mean
    np.testing.assert_allclose(shown[0], np.arange(57.0) + 5.5)
    across = drawn.figure.axes[0].lines[0].get_xdata()
    np.testing.assert_allclose(across, np.arange(57.0) + 6)


def test_panels_hold_their_own_arms_under_the_names_that_readers_see() -> None:
    drawn = plot_beyond_panels(
        {
            "one": {"rotary": rising(2), "rotary, base": rising(2)},
            "two": {"alibi": rising(2)},
        },
        trained=16,
        chance=1.0,
        concepts={"rotary, base": "norm"},
    )
    first, second = drawn.figure.axes
    assert [text.get_text() for text in first.get_legend().get_texts()] == [
        "rotary",
        "rotary, larger base",
    ]
    assert [text.get_text() for text in second.get_legend().get_texts()] == ["ALiBi"]
    assert len(lines(first)) == 6
    assert len(lines(second)) == 3
    assert not first.get_xlabel()
    assert second.get_xlabel() == "position"
