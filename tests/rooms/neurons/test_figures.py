"""Figures on neurons draw the numbers that they are given."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from measured_book.evidence.results import load_results
from measured_book.rooms.neurons import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("neurons")
DRAWN = {
    "plot_one_neuron": lambda: figures.plot_one_neuron(RESULTS["portraits"], "string"),
    "plot_conventions": figures.plot_conventions,
    "plot_described": lambda: figures.plot_described(RESULTS["language"]),
    "plot_known": lambda: figures.plot_known(RESULTS["language"]),
    "plot_written": lambda: figures.plot_written(RESULTS["language"]),
    "plot_busy": lambda: figures.plot_busy(RESULTS["digits"], RESULTS["language"]),
    "plot_promised": lambda: figures.plot_promised(RESULTS["portraits"]),
    "plot_pairing": lambda: figures.plot_pairing(RESULTS["writing"]),
    "plot_missing": lambda: figures.plot_missing(RESULTS["writing"]),
    "plot_detectors": lambda: figures.plot_detectors(RESULTS["digits"]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = DRAWN[name]()
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    labels = [axes.get_xlabel() for axes in drawn.figure.axes if axes.axison]
    assert any(labels) or not labels, "grids of cells and lines of text have no axes"


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def rectangles(axes):
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def test_both_conventions_mark_one_key_and_one_value():
    drawn = figures.plot_conventions(d_model=3, d_ff=5, neuron=1)
    for axes in drawn.figure.axes:
        cells = rectangles(axes)
        assert len(cells) == 15 + 15 + 3
        colours = [patch.get_facecolor() for patch in cells]
        strongest = min(set(colours), key=lambda colour: sum(colour[:3]))
        assert colours.count(strongest) == 6  # three numbers of the key, three of the value
        assert {"key", "value"} <= {text.get_text() for text in axes.texts}


def test_a_neuron_is_shaded_by_what_it_says_and_framed_at_its_rank():
    one = RESULTS["portraits"].isel(seed=0).sel(neuron="string")
    top, left, right = figures.plot_one_neuron(RESULTS["portraits"], "string").figure.axes
    cells = rectangles(top)
    assert len(cells) == one.says.size
    framed = [cell for cell in cells if cell.get_linewidth() > 0]
    assert len(framed) == one.sizes["rank"] * one.sizes["line"]
    places = [round(cell.get_x() - 0.28 * figures.WIDE) for cell in framed]
    assert places == one["at"].values.astype(int).ravel().tolist()
    assert [bar.get_width() for bar in rectangles(right)] == one.push.values.tolist()
    (middles,) = [line for line in left.get_lines() if line.get_marker() == "^"]
    assert (
        np.asarray(middles.get_xdata()).tolist() == one["product"].sel(percent=50).values.tolist()
    )
