"""Every figure of the chapter on language models draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.language_models import figures
from measured_book.rooms.language_models.measure import book_model
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("language_models")
DRAWN = {
    "plot_tree": figures.plot_tree,
    "plot_source": lambda: figures.plot_source(RESULTS["source"]),
    "plot_cuts": lambda: figures.plot_cuts(RESULTS["cuts"]),
    "plot_peeking": lambda: figures.plot_peeking(RESULTS["peeking"]),
    "plot_author": lambda: figures.plot_author(RESULTS["author"]),
    "plot_choices": lambda: figures.plot_choices(book_model(RESULTS["kept"])),
    "plot_writing": lambda: figures.plot_writing(RESULTS["writing"]),
    "plot_calibration": lambda: figures.plot_calibration(RESULTS["author"]),
    "plot_scaling": lambda: figures.plot_scaling(RESULTS["scaling"]),
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
    assert any(labels) or not labels, "bricks have no axes"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_every_row_of_bricks_is_as_wide_as_the_wall() -> None:
    bricks = figures.plot_tree().figure.axes[0].patches
    assert len(bricks) == 2 + 4 + 8
    for level in range(3):
        assert sum(b.get_width() for b in bricks if b.get_y() == level) == pytest.approx(1)


def test_runs_that_were_held_out_are_hollow() -> None:
    axes = figures.plot_scaling(RESULTS["scaling"]).figure.axes[0]
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    for line in marks:
        hollow = line.get_markerfacecolor() != line.get_color()
        assert hollow == (line.get_xdata()[0] >= figures.HELD_OUT)
    assert len(marks) == RESULTS["scaling"].nats.size
