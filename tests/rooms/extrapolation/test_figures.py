"""Every figure on longer sequences draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.extrapolation import figures
from measured_book.rooms.extrapolation.reading import more_training
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("extrapolation")
DRAWN = {
    "plot_dials": lambda: figures.plot_dials(),
    "plot_reading": lambda: figures.plot_reading(
        [
            (
                {name: RESULTS["lag"].excess.sel(scheme=name) for name in ("rotary", "alibi")},
                1.0,
                {"rotary": (50, 1.0), "alibi": (50, 0.1)},
            )
        ],
        trained=32,
        top=3.0,
    ),
    "plot_slowing": lambda: figures.plot_slowing(),
    "plot_methods": lambda: figures.plot_methods(
        RESULTS["text"],
        more_training(RESULTS["again"], RESULTS["short"]),
        trained=64,
        places={"NTK-aware": (100, 1.0)},
    ),
    "plot_evicted": lambda: figures.plot_evicted(
        RESULTS["lately"],
        trained=32,
        chance=0.7,
        places=dict.fromkeys(("everything", "window", "window and start"), (1.0, 1.0)),
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
    labels = [axes.get_xlabel() for axes in drawn.figure.axes if axes.axison]
    assert any(labels) or name == "plot_dials"  # dials have no axes


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and name.startswith("plot_")
    }
    assert made_here == set(DRAWN)


def test_every_seed_and_the_mean_are_lines() -> None:
    axes = DRAWN["plot_reading"]().figure.axes[0]
    lines = [np.asarray(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) > 2]
    assert len(lines) == 2 * (10 + 1)
    rotary = RESULTS["lag"].excess.sel(scheme="rotary").transpose("seed", "bucket").values
    np.testing.assert_allclose(lines[:10], rotary)
    np.testing.assert_allclose(lines[10], rotary.mean(0))
