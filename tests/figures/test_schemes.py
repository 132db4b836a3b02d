"""Every figure on schemes of positions draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.figures import schemes as figures
from measured_transformer.viewer.style import ThemedFigure

RNG = np.random.default_rng(0)
SEEDS = RNG.random(5)
DRAWN = {
    "plot_position_maps": lambda: figures.plot_position_maps(
        {n: RNG.random((4, 4)) for n in "abc"}
    ),
    "plot_strip": lambda: figures.plot_strip(
        {"none": SEEDS, "rotary": SEEDS}, label="loss", reference=0.5
    ),
    "plot_strips": lambda: figures.plot_strips(
        {"one": {"none": SEEDS}, "two": {"none": SEEDS, "rotary": SEEDS}}, label="loss"
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
    assert made_here - {"shown_name"} == set(DRAWN)
