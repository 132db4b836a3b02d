"""Every figure on heads draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.one_head import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("one_head")
DRAWN = {
    "plot_twins": lambda: figures.plot_twins(
        [[1, 2], [1, 2], [3], []], 3, {"once": [0.0, 0.1, 1.0, 2.0, 2.1], "again": [0.0] * 5}
    ),
    "plot_spares": lambda: figures.plot_spares(RESULTS["spares"]),
    "plot_curves": lambda: figures.plot_curves(RESULTS["orders"]),
    "plot_which_layer": lambda: figures.plot_which_layer(RESULTS["by_rate"]),
    "plot_between_two_numbers": lambda: figures.plot_between_two_numbers(RESULTS["roles"]),
    "plot_found_rows": lambda: figures.plot_found_rows(RESULTS["roles"]),
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
        if getattr(value, "__module__", "") == figures.__name__
        and not name.startswith("_")
        and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)
