"""Every figure on the order of layers draws what it is given, in both themes."""

from __future__ import annotations

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.layers import figures
from measured_book.rooms.layers.reading import climb, falls
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("layers")
ROWS = {"even": [0.25] * 4, "one": [0.0, 0.0, 1.0, 0.0]}
DRAWN = {
    "plot_rows_of_weights": lambda: figures.plot_rows_of_weights(ROWS, dict.fromkeys(ROWS, "x")),
    "plot_looks": lambda: figures.plot_looks(RESULTS["looking"], 6.0),
    "plot_heads": lambda: figures.plot_heads(RESULTS["doing"], 6.0),
    "plot_missed": lambda: figures.plot_missed(RESULTS["doing"]),
    "plot_known": lambda: figures.plot_known(RESULTS["knowing"]),
    "plot_read_early": lambda: figures.plot_read_early(RESULTS["doing"], 0.9),
    "plot_made_by_training": lambda: figures.plot_made_by_training(
        {"climb": climb(RESULTS["looking"], of="distance"), "fall": falls(RESULTS["looking"])}
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
    assert any(labels)


def lines(drawn: ThemedFigure, panel: int) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata(), float) for line in drawn.figure.axes[panel].get_lines()]


def shows(drawn: ThemedFigure, values: np.ndarray, panel: int) -> bool:
    return any(len(y) == len(values) and np.allclose(y, values) for y in lines(drawn, panel))


def test_every_seed_of_every_kind_is_there_by_layer() -> None:
    drawn, looking = DRAWN["plot_looks"](), RESULTS["looking"]
    for panel, values in enumerate((looking.distance, looking.entropy)):
        for kind in looking.kind.values:
            for row in values.sel(kind=kind).transpose("seed", "layer").values:
                assert shows(drawn, row, panel)


def test_every_head_of_every_seed_is_there() -> None:
    drawn, doing = DRAWN["plot_heads"](), RESULTS["doing"]
    for panel in (0, 1):
        dots = sum(len(y) for y in lines(drawn, panel) if len(y) > 2)
        assert dots == doing.sizes["seed"] * doing.sizes["layer"] * doing.sizes["head"]


def test_every_figure_function_is_tried() -> None:
    made_here = {
        name
        for name, value in vars(figures).items()
        if getattr(value, "__module__", "") == figures.__name__ and not name.startswith("_")
    }
    assert made_here == set(DRAWN)
