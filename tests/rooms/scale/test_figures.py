"""Figures of the scale: what is drawn is what was measured."""

import math

import numpy as np
import pytest
from measured_book.rooms.scale.figures import (
    ARMS,
    CONCEPTS,
    plot_apart,
    plot_divisor,
    plot_forms,
    plot_growth,
    plot_rates,
    plot_shares,
    plot_tosses,
    plot_weights_of_one,
    plot_what_passes,
)
from measured_book.rooms.scale.measure import DIVISORS, FORMS, GROWN, RATES
from measured_transformer.viewer.style import COLOURS
from xarray import Dataset

RNG = np.random.default_rng(0)
SEEDS = 3


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def dataset(names, **coords):
    axes = ("seed", *coords)
    shape = (SEEDS, *map(len, coords.values()))
    variables = {name: (axes, RNG.random(shape)) for name in names}
    return Dataset(variables, coords={name: list(values) for name, values in coords.items()})


def shows(axes, x, rows):
    drawn = [(line.get_xdata(), line.get_ydata()) for line in axes.get_lines()]
    return all(
        any(len(px) == len(x) and np.allclose(px, x) and np.allclose(py, y) for px, py in drawn)
        for y in (*rows, rows.mean(0))
    )


def test_tosses_are_densities_that_fall_together_when_divided():
    above, below = plot_tosses((4, 16)).figure.axes
    for line in above.get_lines():
        x, density = line.get_data()
        assert np.sum(density) * (x[1] - x[0]) == pytest.approx(1)
    for width in (4, 16):
        x, density = lines(below)[f"width {width}"].get_data()
        assert np.sum(density * x**2) * (x[1] - x[0]) == pytest.approx(1)


def test_shares_are_drawn_for_each_width():
    drawn = dataset(("ordered", "ordered_divided"), width=(16, 128), rank=range(1, 11))
    panels = plot_shares(drawn, (16, 128)).figure.axes
    for panel, name in zip(panels, ("ordered", "ordered_divided"), strict=True):
        for width in (16, 128):
            rows = drawn[name].sel(width=width).values
            assert shows(panel, range(1, 11), rows)


def test_what_passes_counts_rows_and_marks_the_mean():
    drawn = Dataset(
        {
            "passing": (
                ("seed", "width", "keys", "percent"),
                np.array([[[[0.01, 0.1, 1.0]]], [[[0.03, 0.3, 3.0]]]]),
            ),
            "passing_mean": (("seed", "width", "keys"), [[[1.0]], [[2.2]]]),
        },
        coords={"width": [16], "keys": [10], "percent": [25, 50, 75]},
    )
    [axes] = plot_what_passes(drawn, (16,), (10,)).figure.axes
    curve = lines(axes)["width 16"]
    np.testing.assert_allclose(curve.get_xdata(), [0.02, 0.2, 2.0])
    np.testing.assert_allclose(curve.get_ydata(), [0.25, 0.5, 0.75])
    [mean] = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert float(np.ravel(mean.get_xdata())[0]) == pytest.approx(1.6)
    expected = 0.5 + 0.25 * 1.4 / 1.8
    assert float(np.ravel(mean.get_ydata())[0]) == pytest.approx(expected)


RATED = dataset(("accuracy", "largest"), width=(16, 128), arm=tuple(ARMS), rate=RATES)


def test_every_arm_is_drawn_over_the_learning_rate():
    panels = plot_rates(RATED, (16, 128)).figure.axes
    for panel, width in zip(panels, (16, 128), strict=True):
        for arm, name in ARMS.items():
            assert shows(panel, RATES, RATED.accuracy.sel(width=width, arm=arm).values)
            assert lines(panel)[name].get_color() == COLOURS[CONCEPTS[arm]]


def test_starts_and_steps_are_four_groups():
    apart = dataset(("accuracy",), arm=("start", "steps"), rate=RATES)
    [axes] = plot_apart(RATED, apart).figure.axes
    for arm in ("start", "steps"):
        assert shows(axes, RATES, apart.accuracy.sel(arm=arm).values)
    for arm in ("root", "none"):
        assert shows(axes, RATES, RATED.accuracy.sel(width=128, arm=arm).values)
    assert len([name for name in lines(axes) if " start, " in name]) == 4


def test_growth_is_drawn_over_steps_and_rates():
    growth = dataset(("largest",), arm=tuple(ARMS), steps=GROWN)
    above, below = plot_growth(growth, RATED).figure.axes
    for arm in ARMS:
        assert shows(above, [3, *GROWN[1:]], growth.largest.sel(arm=arm).values)
        assert shows(below, RATES, RATED.largest.sel(width=128, arm=arm).values)


def test_learning_curves_of_the_divisors():
    divisor = dataset(("curve",), divisor=DIVISORS, step=range(10, 14))
    [axes] = plot_divisor(divisor).figure.axes
    for name in DIVISORS:
        assert shows(axes, range(10, 14), divisor.curve.sel(divisor=name).values)


def test_weights_of_one_are_those_of_the_functions():
    above, below = plot_weights_of_one((0.0, 0.0)).figure.axes
    drawn = lines(above)
    x = drawn["softmax"].get_xdata()
    at = int(np.argmin(np.abs(x - 2)))
    e = math.exp(x[at])
    assert drawn["softmax"].get_ydata()[at] == pytest.approx(e / (e + 2))
    assert drawn["plus one"].get_ydata()[at] == pytest.approx(e / (e + 3))
    assert drawn["sigmoid"].get_ydata()[at] == pytest.approx(e / (e + 3))
    assert drawn["sparsemax"].get_ydata()[at] == 1
    for name in ("softmax", "entmax", "sparsemax"):
        np.testing.assert_allclose(lines(below)[name].get_ydata(), 1)
    assert lines(below)["plus one"].get_ydata().max() < 1


def test_forms_have_a_row_each_and_a_panel_a_task():
    forms = dataset(
        ("accuracy",), task=("recall", "count"), form=tuple(FORMS), length=("trained", "longer")
    )
    panels = plot_forms(forms).figure.axes
    for panel, task in zip(panels, ("recall", "count"), strict=True):
        assert [label.get_text() for label in panel.get_yticklabels()] == list(FORMS)
        means = [
            float(np.ravel(line.get_xdata())[0])
            for line in panel.get_lines()
            if line.get_marker() == "D" and len(np.ravel(line.get_xdata())) == 1
        ]
        wanted = forms.accuracy.sel(task=task, length="trained").mean("seed").values
        np.testing.assert_allclose(means, wanted)
        longer = forms.accuracy.sel(task=task, length="longer").mean("seed").values
        [hollow] = [line for line in panel.get_lines() if len(np.ravel(line.get_xdata())) == 7]
        np.testing.assert_allclose(hollow.get_xdata(), longer)
