"""Every figure of the chapter on induction draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.induction import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("induction")
DRAWN = {
    "plot_matrices": lambda: figures.plot_matrices(RESULTS["matrices"]),
    "plot_cliff": lambda: figures.plot_cliff(RESULTS["cliff"]),
    "plot_harm": lambda: figures.plot_harm(RESULTS["formed"], RESULTS["needed"]),
    "plot_apart": lambda: figures.plot_apart(RESULTS["needed"]),
    "plot_mixed": lambda: figures.plot_mixed(RESULTS["mixed"]),
    "plot_text": lambda: figures.plot_text(RESULTS["text"]),
    "plot_regression": lambda: figures.plot_regression(RESULTS["regression"]),
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


def test_matrices_are_those_of_the_first_seed() -> None:
    panels = figures.plot_matrices(RESULTS["matrices"]).figure.axes
    images = [np.asarray(axes.images[0].get_array()) for axes in panels if axes.images]
    kept = RESULTS["matrices"].isel(seed=0)
    for shown, (name, state) in zip(
        images[:4],
        [(name, state) for name in ("match", "copy") for state in ("untrained", "trained")],
        strict=True,
    ):
        np.testing.assert_allclose(shown, kept[name].sel(state=state).values)


def test_every_head_of_every_seed_is_a_dot() -> None:
    panels = figures.plot_harm(RESULTS["formed"], RESULTS["needed"]).figure.axes
    for layer, axes in enumerate(panels):
        drawn = axes.lines[0].get_ydata()
        of = RESULTS["needed"].harm.sel(deep="attention only", layer=layer)
        np.testing.assert_allclose(np.sort(drawn), np.sort(of.values.ravel()))
