"""The figure of counts draws the numbers that it is given."""

import numpy as np
import pytest
from measured_book.rooms.counting import figures, measure
from xarray import Dataset


def test_bars_of_parameters_are_their_shares():
    given = measure.counted(0)
    axes = {name: value for name, value in given.items() if isinstance(value, tuple)}
    counted = Dataset(
        {n: (("seed", "model"), [v]) for n, (axis, v) in axes.items() if axis == "model"},
        coords={"model": list(measure.MODELS)},
    )
    shares, ratios = figures.plot_models(counted).figure.axes
    bars = np.array([bar.get_width() for bar in shares.patches]).reshape(4, -1)
    here = counted.isel(seed=0)
    for row, name in zip(bars, ("embedding", "attention", "network", "head"), strict=True):
        np.testing.assert_allclose(row, (here[name] / here.total).values)
    assert bars.sum(0) == pytest.approx(1, abs=1e-3), "norms alone are left out"
    [marks] = [line for line in ratios.get_lines() if line.get_marker() == "D"]
    np.testing.assert_allclose(marks.get_xdata(), here.network / here.attention)
