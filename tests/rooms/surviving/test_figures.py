"""Every figure on the position on its way through the layers draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.surviving import figures
from measured_transformer.viewer.style import ThemedFigure

RNG = np.random.default_rng(0)
RESULTS = load_results("surviving")
DRAWN = {
    "plot_stacks": lambda: figures.plot_stacks(RESULTS["untrained_stacks"]),
    "plot_sizes": lambda: figures.plot_sizes(RESULTS["sizes"]),
    "plot_trained": lambda: figures.plot_trained(RESULTS["deep"], chance=1.0),
    "plot_trained_patterns": lambda: figures.plot_trained_patterns(
        {n: RNG.random((4, 4)) for n in "abc"}
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
    assert any(labels)


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)
