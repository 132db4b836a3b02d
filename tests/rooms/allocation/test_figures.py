"""Every figure of the chapter draws what it is given: each seed, every prediction, nothing changed."""

import numpy as np
import pytest
from measured_book.rooms.allocation import figures as allocation
from measured_book.rooms.allocation.measure import (
    longest,
    margin_weights,
    needed_margin,
    total_weight,
)
from measured_transformer.viewer.style import ThemedFigure
from xarray import Dataset

RNG = np.random.default_rng(0)
SEEDS = 3


def table(columns: int) -> np.ndarray:
    return RNG.random((SEEDS, columns))


def shows(drawn: ThemedFigure, x, y, panel: int = 0) -> bool:
    found = [
        (np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float))
        for line in drawn.figure.axes[panel].get_lines()
    ]
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    return any(len(px) == len(x) and np.allclose(px, x) and np.allclose(py, y) for px, py in found)


def shows_seeds(drawn, x, rows, panel=0):
    return all(shows(drawn, x, row, panel) for row in (*rows, rows.mean(0)))


def test_budgets_are_cut_as_the_softmax_cuts():
    drawn = allocation.plot_budgets([(8, 1, 2.0), (64, 5, 10.0)])
    widths = [bar.get_width() for bar in drawn.figure.axes[0].patches]
    for n, m, margin in ((8, 1, 2.0), (64, 5, 10.0)):
        weights = margin_weights(margin, n, m)
        for expected in (*weights[:m], 1 - weights[:m].sum()):
            assert np.isclose(widths, expected).any()
    assert sum(widths) == pytest.approx(2)
    assert drawn.dark != drawn.light


def test_margins_and_weights_are_those_of_the_formula():
    lengths = [8, 32, 128]
    drawn = allocation.plot_margins(lengths, (1, 4), (2.0, 4.0))
    for m in (1, 4):
        assert shows(drawn, lengths, [needed_margin(0.99, n, m) for n in lengths])
    for margin in (2.0, 4.0):
        assert shows(drawn, lengths, [total_weight(margin, n) for n in lengths], 1)
    assert shows(drawn, [longest(0.5, 4.0)], [0.5], 1)
    assert not shows(drawn, [longest(0.5, 2.0)], [0.5], 0)


def dataset(coords: dict, **variables: tuple) -> Dataset:
    """Random values over seeds and the named axes."""
    sizes = {"seed": SEEDS, **{axis: len(labels) for axis, labels in coords.items()}}
    return Dataset(
        {
            name: (("seed", *axes), RNG.random([sizes[axis] for axis in ("seed", *axes)]))
            for name, axes in variables.items()
        },
        coords={"seed": range(SEEDS), **coords},
    )


def test_readings_show_seeds_and_prediction():
    reading = dataset(
        {"needed": [1, 10], "tokens": [32, 64], "trained_at": [32, 512], "step": [0, 1, 2]},
        read=("needed", "tokens"),
        predicted=("needed", "tokens"),
        learning=("trained_at", "step"),
    )
    drawn = allocation.plot_readings(reading)
    for m in (1, 10):
        assert shows_seeds(drawn, [32, 64], reading.read.sel(needed=m).values)
        assert shows(drawn, [32, 64], reading.predicted.sel(needed=m).mean("seed"))
    drawn = allocation.plot_learning_to_read(reading)
    for n in (32, 512):
        assert shows_seeds(drawn, [0, 1, 2], reading.learning.sel(trained_at=n).values)


def test_remedies_have_a_row_each():
    reading = dataset({"remedy": ["none", "some"]}, remedied=("remedy",))
    axes = allocation.plot_remedies(reading).figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "some"]
    drawn = np.concatenate([np.atleast_1d(line.get_xdata()) for line in axes.get_lines()])
    for name in ("none", "some"):
        values = reading.remedied.sel(remedy=name).values
        assert all(np.isclose(drawn, value).any() for value in (*values, values.mean()))


def test_nothing_shows_errors_and_the_weight_of_the_start_token():
    nothing = dataset(
        {"reader": ["plain", "start"], "marked": [0, 1, 4]},
        error=("reader", "marked"),
        start_weight=("marked",),
    )
    drawn = allocation.plot_nothing(nothing)
    for reader in ("plain", "start"):
        assert shows_seeds(drawn, [0, 1, 4], nothing.error.sel(reader=reader).values)
    assert shows_seeds(drawn, [0, 1, 4], nothing.start_weight.values, 1)


def test_differences_show_every_arm():
    arms = ["32", "two heads", "differential"]
    difference = dataset({"arm": arms, "tokens": [32, 64]}, read=("arm", "tokens"))
    drawn = allocation.plot_difference(difference)
    for arm in arms:
        assert shows_seeds(drawn, [32, 64], difference.read.sel(arm=arm).values)


def test_the_middle_shows_every_force_but_the_last_token():
    forces = ["causal mask", "distance", "both"]
    middle = dataset({"force": forces, "place": [1, 2, 3]}, share=("force", "place"))
    drawn = allocation.plot_middle(middle.isel(seed=[0]))
    for force in forces:
        assert shows(drawn, [1, 2], middle.share.sel(force=force).isel(seed=0)[:-1])
