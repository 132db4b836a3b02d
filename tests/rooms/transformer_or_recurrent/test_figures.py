"""Every figure of the chapter on Transformers and recurrent networks draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.transformer_or_recurrent import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("transformer_or_recurrent")
DRAWN = {
    "plot_paths": lambda: figures.plot_paths(["k", "v", ".", "k"]),
    "plot_chains": lambda: figures.plot_chains(RESULTS["chains"]),
    "plot_rates": lambda: figures.plot_rates(RESULTS["field"]),
    "plot_race": lambda: figures.plot_race(RESULTS["epochs"]),
    "plot_depth": lambda: figures.plot_depth(RESULTS["depth"]),
    "plot_influence": lambda: figures.plot_influence(RESULTS["influence"]),
    "plot_far": lambda: figures.plot_far(RESULTS["far"], RESULTS["quiet"]),
    "plot_fails": lambda: figures.plot_fails(RESULTS["recall"], RESULTS["parity"]),
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
    assert any(labels) or not labels, "tokens in a row have no axes"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_labels_that_would_touch_are_moved_apart() -> None:
    found = figures._apart({"a": 1.0, "b": 1.0, "c": 3.0}, 0.5)
    assert found["b"] - found["a"] >= 0.5
    assert found["c"] - found["b"] >= 0.5
