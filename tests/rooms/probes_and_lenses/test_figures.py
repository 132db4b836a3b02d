"""Every figure of the chapter on probes and lenses draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.probes_and_lenses import figures
from measured_book.rooms.probes_and_lenses.measure import SENTENCE
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("probes_and_lenses")
DRAWN = {
    "plot_by_heart": lambda: figures.plot_by_heart(RESULTS["sentences"]),
    "plot_damage": lambda: figures.plot_damage(RESULTS["positions"]),
    "plot_erasers": figures.plot_erasers,
    "plot_lenses": lambda: figures.plot_lenses(RESULTS["lenses"]),
    "plot_rounds": lambda: figures.plot_rounds(RESULTS["sentences"]),
    "plot_sentence": lambda: figures.plot_sentence(RESULTS["one_sentence"], SENTENCE),
    "plot_used": lambda: figures.plot_used(
        RESULTS["sentences"], RESULTS["facts"], RESULTS["positions"]
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
    assert any(axes.get_xlabel() for axes in drawn.figure.axes)


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_what_is_read_and_missed_shows_every_seed() -> None:
    axes = DRAWN["plot_used"]().figure.axes
    facts, positions = (RESULTS[name].sizes["seed"] for name in ("facts", "positions"))
    for panel, seeds in zip(axes, (facts, facts, facts, positions), strict=True):
        # three lines for each seed, their means, and chance
        assert len(panel.lines) == 3 * (seeds + 1) + 1
