"""Figures on mixtures of experts draw every seed of what was measured."""

import numpy as np
from measured_book.evidence.results import load_results
from measured_book.rooms.mixture_of_experts import figures

RESULTS = load_results("mixture_of_experts")


def drawn(axes):
    """The heights of all that is drawn on some axes."""
    return np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.get_lines()])


def across(axes):
    """The places of all that is drawn on some axes."""
    return np.concatenate([np.asarray(line.get_xdata(), float) for line in axes.get_lines()])


def test_the_layer_has_three_experts_of_which_one_is_pale():
    figure = figures.plot_layer().figure
    words = {text.get_text(): text.get_alpha() for text in figure.axes[0].texts}
    assert words["expert 2"] < words["expert 1"] == words["expert 3"]


def test_both_prices_are_drawn_with_every_seed():
    bought = RESULTS["bought"]
    panels = figures.plot_bought(bought).figure.axes
    for axes, name in zip(panels, ("operations", "parameters"), strict=True):
        for arm in ("dense 8", "dense 64", "one", "two"):
            assert np.isin(bought.loss.sel(arm=arm).values, drawn(axes)).all()
            assert float(bought[name].sel(arm=arm).isel(seed=0)) in across(axes)


def test_loads_are_drawn_with_every_seed():
    course, hurried = RESULTS["course"], RESULTS["hurried"]
    for axes, of in zip(
        figures.plot_loads(course, hurried).figure.axes, (course, hurried), strict=True
    ):
        assert np.isin(of.busiest.values, drawn(axes)).all()


def test_places_and_choices_are_drawn_with_every_seed():
    places, loads = RESULTS["places"], RESULTS["loads"]
    for axes, name in zip(
        figures.plot_places(places).figure.axes, ("dropped", "loss"), strict=True
    ):
        assert np.isin(places[name].values, drawn(axes)).all()
    for axes, name in zip(figures.plot_choice(loads).figure.axes, ("skill", "item"), strict=True):
        assert np.isin(loads[name].values, across(axes)).all()
