"""Every figure of the chapter on encoder and decoder draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.encoder_decoder import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("encoder_decoder")
DRAWN = {
    "plot_number": lambda: figures.plot_number(4321),
    "plot_machine": figures.plot_machine,
    "plot_alignment": lambda: figures.plot_alignment(RESULTS["examples"]),
    "plot_heads": lambda: figures.plot_heads(RESULTS["alignment"]),
    "plot_worth": lambda: figures.plot_worth(RESULTS["worth"]),
    "plot_beams": lambda: figures.plot_beams(RESULTS["captions"]),
    "plot_lengths": lambda: figures.plot_lengths(RESULTS["worth"]),
    "plot_directions": lambda: figures.plot_directions(RESULTS["fill"], RESULTS["classify"]),
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
    assert any(labels) or not labels, "words and boxes have no axes"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_lines_between_number_words_cross_where_the_order_differs() -> None:
    colours = {line.get_color() for line in figures.plot_number(4321).figure.axes[0].lines}
    assert len(colours) == 2
    straight = {line.get_color() for line in figures.plot_number(4320).figure.axes[0].lines}
    assert len(straight) == 1


def test_heads_show_every_seed() -> None:
    axes = figures.plot_heads(RESULTS["alignment"]).figure.axes[0]
    marks = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    assert sum(len(line.get_xdata()) for line in marks) == 8 * RESULTS["alignment"].sizes["seed"]
