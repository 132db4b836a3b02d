"""Every figure of the chapter on depth and heads draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.depth_and_heads import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("depth_and_heads")
GIVEN = {
    "plot_tables": ("grid",),
    "plot_seeds": ("grid", "ideal"),
    "plot_curves": ("grid",),
    "plot_decoders": ("decoders", "longer", "unmasked", "ideal"),
    "plot_race": ("race", "ideal"),
    "plot_factors": ("grid", "decoders", "race"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_figure_is_drawn_for_both_themes(name: str) -> None:
    drawn = getattr(figures, name)(*(RESULTS[given] for given in GIVEN[name]))
    assert isinstance(drawn, ThemedFigure)
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark
    assert drawn.width == 640


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(GIVEN)


def test_every_seed_has_a_table_with_its_best_cell() -> None:
    grid = RESULTS["grid"]
    panels = figures.plot_tables(grid).figure.axes
    assert len([panel for panel in panels if panel.images]) == grid.sizes["seed"] + 2
    for seed, panel in enumerate(panels[1 : 1 + grid.sizes["seed"]]):
        cells = np.asarray(panel.images[0].get_array())
        star = next(line for line in panel.lines if line.get_marker() == "*")
        column, row = int(star.get_xdata()[0]), int(star.get_ydata()[0])
        assert cells[row, column] == cells.max()
        np.testing.assert_array_equal(
            cells, grid.accuracy.isel(seed=seed).transpose("depth", "heads").values
        )


def test_every_seed_is_shown() -> None:
    grid, ideal = RESULTS["grid"], RESULTS["ideal"]
    axes = figures.plot_seeds(grid, ideal).figure.axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in dots) >= 9 * grid.sizes["seed"]
