"""Every figure on positions that turn queries and keys draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_transformer.chapters.rotary_and_alibi import figures
from measured_transformer.figures.style import ThemedFigure

RNG = np.random.default_rng(0)
DRAWN = {
    "plot_turned_vectors": lambda: figures.plot_turned_vectors(
        [(1, 0), (2, 1)], rate=0.5, query_angle=0.1, key_angle=0.2
    ),
    "plot_score_drift": lambda: figures.plot_score_drift(
        [1, 10], {"a": [0.0, 1e-3], "b": [1e-2, 1.0]}
    ),
    "plot_learning_curves": lambda: figures.plot_learning_curves(
        {"rotary": RNG.random((2, 30)), "none": RNG.random((2, 30))}, best=0.1, level=0.2, window=5
    ),
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
    assert any(labels) or name == "plot_turned_vectors"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)
