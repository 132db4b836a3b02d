"""Every figure of the chapter on metric traps draws what it is given, in both themes."""

from __future__ import annotations

import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.metric_traps import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("metric_traps")
DRAWN = {
    "plot_sentence": figures.plot_sentence,
    "plot_pairs": lambda: figures.plot_pairs(float(RESULTS["table"].share.item())),
    "plot_arms": lambda: figures.plot_arms(RESULTS["arms"]),
    "plot_ladder": lambda: figures.plot_ladder(RESULTS["ladder"]),
    "plot_readings": lambda: figures.plot_readings(RESULTS["simulated"]),
    "plot_rivals": lambda: figures.plot_rivals(RESULTS["rivals"]),
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
    assert any(labels) or not labels, "cells in a row have no axes"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_the_ladder_is_sorted_and_shows_every_seed() -> None:
    axes = figures.plot_ladder(RESULTS["ladder"]).figure.axes[0]
    rows = [tick.get_text() for tick in axes.get_yticklabels()]
    means = RESULTS["ladder"].score.mean("seed").sel(way=rows).values
    assert len(rows) == 21
    assert (means[1:] >= means[:-1]).all()
    marks = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    assert sum(len(line.get_xdata()) for line in marks) == 21 * RESULTS["ladder"].sizes["seed"]
