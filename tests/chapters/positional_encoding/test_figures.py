"""Every figure on vectors that stand for positions draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_transformer.chapters.positional_encoding import figures
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
DRAWN = {
    "word_patterns": lambda: figures.word_patterns(
        np.eye(3), np.eye(3), ["a", "b", "c"], ["c", "b", "a"]
    ),
    "clocks": lambda: figures.clocks([0, 1, 10], [1.0, 0.1]),
    "encoding_table": lambda: figures.encoding_table(RNG.normal(size=(10, 6))),
    "similarity_curve": lambda: figures.similarity_curve(
        np.array([2.0, 1.0, 1.5, 1.0]), [1], marked=(1, 2)
    ),
    "wavelengths": lambda: figures.wavelengths(
        {4: [6.0, 600.0], 6: [6.0, 60.0, 600.0]}, hundreds=(100, 999), length=50
    ),
    "distinct_vectors": lambda: figures.distinct_vectors([8, 16], {"x": [8, 16], "y": [8, 9]}),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert drawn.width == 640
    labels = [axes.get_xlabel() for axes in drawn.figure.axes if axes.axison]
    assert any(labels) or name == "clocks"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)


def test_the_rising_steps_are_those_that_are_drawn_thick() -> None:
    drawn = figures.similarity_curve(np.array([2.0, 1.0, 1.5, 1.0]), [1], marked=())
    thick = [line for line in drawn.figure.axes[0].lines if line.get_linewidth() > 3]
    assert [line.get_ydata().tolist() for line in thick] == [[0.5, 0.75]]
