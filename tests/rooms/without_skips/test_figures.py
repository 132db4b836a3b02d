"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import functools

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.without_skips import figures
from measured_transformer.viewer.style import ThemedFigure

RESULTS = load_results("without_skips")


@functools.cache
def drawn(name: str) -> ThemedFigure:
    """The figure of this name from the kept results."""
    wanted = {
        "plot_gradient_sizes": ["untrained", "weights"],
        "plot_collapse": ["untrained", "six"],
        "plot_cube": ["cube"],
        "plot_paths": ["untrained", "highway"],
        "plot_cuts": ["cut_two", "cut_twelve"],
    }[name]
    more = [0.2] if name == "plot_collapse" else []
    return getattr(figures, name)(*(RESULTS[each] for each in wanted), *more)


@pytest.mark.parametrize(
    "name",
    ["plot_gradient_sizes", "plot_collapse", "plot_cube", "plot_paths", "plot_cuts"],
)
def test_figures_are_drawn_for_day_and_night(name):
    figure = drawn(name)
    assert figure.light.startswith(b"\x89PNG")
    assert figure.dark.startswith(b"\x89PNG")
    assert figure.light != figure.dark


def shows(figure: ThemedFigure, row: np.ndarray, panel: int) -> bool:
    lines = [np.asarray(line.get_ydata()) for line in figure.figure.axes[panel].get_lines()]
    return any(len(y) == len(row) and np.allclose(y, row) for y in lines)


def test_every_seed_and_the_mean_are_drawn():
    values = np.log10(
        RESULTS["untrained"].gradient.sel(norm="pre", skip="without").transpose("seed", "state")
    ).values
    for row in (*values, values.mean(0)):
        assert shows(drawn("plot_gradient_sizes"), row, 1)
    cuts = RESULTS["cut_twelve"].accuracy.sel(cut="skip").transpose("seed", "sublayer").values
    for row in (*cuts, cuts.mean(0)):
        assert shows(drawn("plot_cuts"), row, 1)


def test_gradients_of_queries_and_keys_stand_below_those_of_the_stream():
    asked = figures.attended(RESULTS["weights"].twelve.sel(norm="post", skip="without"))
    for row in asked.transpose("seed", "block").values:
        assert shows(drawn("plot_gradient_sizes"), row, 5)


def test_the_straight_path_is_drawn_for_every_model_before_and_after_training():
    found = RESULTS["highway"].straight
    for stage in ("untrained", "trained"):
        for row in found.sel(stage=stage).transpose("seed", "state").values:
            assert shows(drawn("plot_paths"), row, 1)
