"""Every figure on superposition draws what it is given, in both themes."""

from __future__ import annotations

import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.rooms.superposition import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("superposition")
DRAWN = {
    "plot_pentagon": figures.plot_pentagon,
    "plot_rescue": figures.plot_rescue,
    "plot_phases": lambda: figures.plot_phases(RESULTS["pairs"]),
    "plot_polygons": lambda: figures.plot_polygons(RESULTS["polygons"]),
    "plot_shares": lambda: figures.plot_shares(RESULTS["dimensions"]),
    "plot_known": lambda: figures.plot_known(RESULTS["world"]),
    "plot_failures": lambda: figures.plot_failures(RESULTS["world"]),
    "plot_judged": lambda: figures.plot_judged(RESULTS["language"]),
    "plot_portraits": lambda: figures.plot_portraits(RESULTS["portraits"]),
    "plot_kinds": lambda: figures.plot_kinds(RESULTS["language"]),
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
    assert any(labels) or not labels, "arrows and lines of text have no axes"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_the_stretched_pentagon_is_read_exactly_and_mutes_its_neighbours() -> None:
    one = torch.eye(5, dtype=torch.float64)
    read = figures.read_back(figures.stretched(), one, figures.rescuing_bias())
    torch.testing.assert_close(read, one, atol=1e-12, rtol=0)
    assert float(figures.stretched().norm(dim=0)[0]) == pytest.approx(1.203, abs=5e-4)
    assert figures.rescuing_bias() == pytest.approx(-0.447, abs=5e-4)
