"""Every figure of the chapter is drawn from its results, in both themes, and shows every seed."""

import numpy as np
import pytest
from measured_book.evidence.results import load_results
from measured_book.rooms.residual_stream import figures
from measured_book.rooms.residual_stream.measure import there_is

RESULTS = load_results("residual_stream")


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (figures.plot_answer, ["two"]),
        (figures.plot_wires, ["wires"]),
        (figures.plot_growth, ["two", "twelve", "fetched"]),
        (figures.plot_writers, ["two"]),
        (figures.plot_kept, ["two", "twelve"]),
    ],
)
def test_figures_are_drawn_for_day_and_night(draw, names):
    drawn = draw(*(RESULTS[name] for name in names))
    assert drawn.light.startswith(b"\x89PNG")
    assert drawn.dark.startswith(b"\x89PNG")
    assert drawn.light != drawn.dark


def test_by_hand_ends_where_the_sums_end():
    drawn = figures.plot_by_hand((3.0, 1.0), [(-1.0, 2.0), (1.0, 1.0)], [(0.8, 1.2), (0.9, 1.1)])
    ends = [axes.get_lines()[-1] for axes in drawn.figure.axes]
    found = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ends]
    assert found == [(3.0, 4.0), (0.9, 1.1)]


def test_every_model_is_a_dot_for_every_part():
    two = RESULTS["two"]
    figure = figures.plot_answer(two).figure
    for panel, name in zip(figure.axes, ("length", "logit", "lost"), strict=True):
        drawn = np.concatenate([np.ravel(line.get_xdata()) for line in panel.get_lines()])
        for value in two[name].sel(rate="tuned").values.ravel():
            assert np.isclose(drawn, value).any()


def test_there_is_a_bar_for_every_model_where_there_is_a_wire_and_nothing_elsewhere():
    wires = RESULTS["wires"]
    figure = figures.plot_wires(wires).figure
    pairs = [
        (sender, reader)
        for sender in range(wires.sizes["sender"])
        for reader in wires.reader.values
        if there_is(sender, str(reader))
    ]
    for panel, rate in zip(figure.axes, ("tuned", "large"), strict=True):
        bars = [patch for patch in panel.patches if patch.get_fill()]
        assert len(bars) == len(pairs) * wires.sizes["seed"]
        heights = [-bar.get_height() / 0.88 for bar in bars]
        kept = wires.lost.sel(rate=rate).transpose("sender", "reader", "seed")
        expected = [kept.isel(sender=s).sel(reader=r).values for s, r in pairs]
        np.testing.assert_allclose(heights, np.clip(np.concatenate(expected), 0, 1), atol=1e-9)


def test_growth_has_a_logarithmic_axis_with_plain_numbers():
    axes = figures.plot_growth(RESULTS["two"], RESULTS["twelve"], RESULTS["fetched"]).figure.axes[0]
    assert axes.get_yscale() == "log"
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "0.5"
