"""Figures on attribution draw what they are given: every method, every seed that counts, both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.attribution import figures
from measured_book.rooms.attribution.measure import METHODS, TASKS
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("attribution")
DRAWN = {
    "plot_question": lambda: figures.plot_question(RESULTS["one_question"]),
    "plot_found": lambda: figures.plot_found(RESULTS["found"]),
    "plot_depths": lambda: figures.plot_depths(RESULTS["found"]),
    "plot_complete": lambda: figures.plot_complete(RESULTS["complete"]),
    "plot_both_or_either": lambda: figures.plot_both_or_either(RESULTS["found"], RESULTS["copies"]),
    "plot_heads": lambda: figures.plot_heads(RESULTS["parts"]),
    "plot_atoms": lambda: figures.plot_atoms(RESULTS["atoms"]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert drawn.width == 640
    assert any(axes.get_xlabel() for axes in drawn.figure.axes)


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_every_method_has_a_name_and_a_row() -> None:
    assert set(figures.TEXT) == set(METHODS)
    axes = figures.plot_found(RESULTS["found"]).figure.axes[0]
    assert {tick.get_text() for tick in axes.get_yticklabels()} == set(figures.TEXT.values())
    means = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert len(means) >= len(METHODS) * len(TASKS)
