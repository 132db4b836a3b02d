"""Every figure of the chapter is drawn from its results, in both themes, and shows every run."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.step_size import figures

RESULTS = load_results("step_size")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_steps, ["untrained"]),
        (figures.plot_staircase, ["rates", "towers", "deepest"]),
        (figures.plot_towers, ["rates", "towers", "deepest"]),
        (figures.plot_factors, ["rates", "towers"]),
        (figures.plot_rates, ["rates"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_every_run_of_a_tower_of_twelve_blocks_is_a_dot():
    towers = RESULTS["towers"]
    figure = figures.plot_towers(RESULTS["rates"], towers, RESULTS["deepest"]).figure
    dots = sum(
        len(line.get_ydata()) for line in figure.axes[0].lines if line.get_marker() != "None"
    )
    assert dots == towers.right.sel(move=5).size


def test_every_cell_of_the_table_says_its_share():
    rates = RESULTS["rates"]
    figure = figures.plot_rates(rates).figure
    shares = (rates.right.sel(move=4) >= 0.75).mean("seed").transpose("arm", "rate").values
    assert [text.get_text() for text in figure.axes[0].texts] == [
        f"{s:.0%}" for s in shares.ravel()
    ]


def test_labels_are_moved_apart_and_keep_their_order():
    placed = figures.apart([0.9, 0.5, 0.91, 0.92], 0.05)
    assert np.argsort(placed).tolist() == [1, 0, 2, 3]
    assert np.diff(np.sort(placed)).min() >= 0.05 - 1e-9
    assert np.mean(placed) == pytest.approx(np.mean([0.9, 0.5, 0.91, 0.92]))
