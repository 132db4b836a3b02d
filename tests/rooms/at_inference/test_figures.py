"""Every figure on attention at inference draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.at_inference import figures, measure
from measured_transformer.analysis.roofline import A100
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("at_inference")
DRAWN = {
    "plot_step": lambda: figures.plot_step(),
    "plot_caches": lambda: figures.plot_caches(measure.CACHES),
    "plot_bound": lambda: figures.plot_bound(A100, measure.roofline_points()),
    "plot_throughput": lambda: figures.plot_throughput(A100),
    "plot_clock": lambda: figures.plot_clock(RESULTS["clocked"]),
    "plot_pages": lambda: figures.plot_pages(
        {"a": [0, 2], "b": [1]}, {"a": 5, "b": 4}, page=4, most=8
    ),
    "plot_schedule": lambda: figures.plot_schedule([2, 5, 3], [(0, 1), (0, 1), (1, 2)], 2),
    "plot_overlap": lambda: figures.plot_overlap([0.5, 0.5], [0.1, 0.9], ["yes", "no"]),
    "plot_drafted": lambda: figures.plot_drafted(RESULTS["drafted"]),
    "plot_training": lambda: figures.plot_training(RESULTS["clocked"], RESULTS["stored"]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert drawn.width == 640


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)


def test_pages_hold_the_tokens_that_they_are_given() -> None:
    _, below = DRAWN["plot_pages"]().figure.axes
    words = [text.get_text() for text in below.texts]
    assert words == ["a1", "0", "b1", "1", "a2", "2", "free", "3"]
    filled = [patch for patch in below.patches if patch.get_facecolor()[3] > 0]
    assert len(filled) == 9


def test_bars_of_the_schedule_are_as_long_as_the_texts() -> None:
    waiting, _ = DRAWN["plot_schedule"]().figure.axes
    assert sorted(patch.get_width() for patch in waiting.patches) == [2, 3, 5]
    assert [line.get_xdata()[0] for line in waiting.get_lines()] == [8]
