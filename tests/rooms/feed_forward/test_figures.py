"""Figures on the feed-forward network draw the numbers that they are given."""

import numpy as np
from measured_book.rooms.feed_forward import figures, measure
from measured_book.rooms.feed_forward.measure import Fit, by_hand
from xarray import Dataset


def lines(drawn, panel):
    return [
        (np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
        for line in drawn.figure.axes[panel].get_lines()
    ]


def test_the_token_stands_on_its_contour():
    drawn = figures.plot_ramps(by_hand(), (2.0, 1.0))
    assert drawn.light != drawn.dark
    for panel in (0, 1):
        assert any(x.tolist() == [2.0] and y.tolist() == [1.0] for x, y in lines(drawn, panel))
    (legend,) = drawn.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"neuron {i}" for i in (1, 2, 3)]


def test_each_width_has_its_fits_and_ticks():
    x = np.linspace(-1, 1, 5)
    fits = {
        m: [Fit(np.linspace(-1, 1, m), m * x, 0.0), Fit(np.zeros(m), -m * x, 0.0)]
        for m in (1, 2, 3, 4)
    }
    drawn = figures.plot_widths(x, x**2, fits)
    for panel, m in enumerate(fits):
        found = lines(drawn, panel)
        assert any(np.allclose(y, m * x) for _, y in found if len(y) == 5)
        assert any(np.allclose(y, -m * x) for _, y in found if len(y) == 5)
        assert any(len(y) == m and np.allclose(x_, np.linspace(-1, 1, m)) for x_, y in found)


def test_zeros_between_positions_are_empty_cells():
    attention, network = np.tril(np.ones((3, 3))), np.eye(3)
    attention[1, 0] = 1e-15  # small is not zero
    drawn = figures.plot_seen_positions(attention, network)
    shown = [axes.get_images()[0].get_array() for axes in drawn.figure.axes[:2]]
    for found, blocks in zip(shown, (attention, network), strict=True):
        cells = np.ma.filled(np.ma.masked_invalid(found).astype(float), np.nan)
        assert np.array_equal(cells, np.where(blocks > 0, blocks, np.nan), equal_nan=True)


RNG = np.random.default_rng(0)


def drawn_values(names, **coords):
    axes = ("seed", *coords)
    shape = (3, *map(len, coords.values()))
    return Dataset(
        {name: (axes, RNG.random(shape)) for name in names},
        coords={axis: list(labels) for axis, labels in coords.items()},
    )


def test_accuracy_over_length_has_each_seed_and_the_mean():
    company = drawn_values(("by_length",), arm=measure.ALONE, tokens=measure.TOKENS)
    rows = [y for x, y in lines(figures.plot_by_length(company), 0) if len(x) == 5]
    for arm in measure.ALONE:
        values = company.by_length.sel(arm=arm).values
        for wanted in (*values, values.mean(0)):
            assert any(np.allclose(wanted, row) for row in rows)


def test_each_job_stands_where_its_two_losses_meet():
    jobs = drawn_values(("accuracy",), job=measure.JOBS, arm=measure.THREE)
    network, attention = figures.lost(jobs)
    dots = lines(figures.plot_jobs(jobs), 0)
    for job in measure.JOBS:
        x, y = network.sel(job=job).values, attention.sel(job=job).values
        whole = jobs.accuracy.sel(job=job, arm="whole").values
        np.testing.assert_allclose(x, whole - jobs.accuracy.sel(job=job, arm="heads").values)
        np.testing.assert_allclose(y, whole - jobs.accuracy.sel(job=job, arm="neurons").values)
        for wanted in ((x, y), ([x.mean()], [y.mean()])):
            assert any(len(a) == len(wanted[0]) and np.allclose((a, b), wanted) for a, b in dots)


def test_both_ways_of_taking_a_part_away_are_drawn_for_each_seed():
    jobs = drawn_values(("loss",), job=measure.JOBS, arm=measure.THREE).merge(
        drawn_values(("taken",), job=measure.JOBS, part=measure.PARTS)
    )
    drawn = figures.plot_taken(jobs)
    for panel, (part, instead) in enumerate(zip(measure.PARTS, ("heads", "neurons"), strict=True)):
        rows = [x for x, _ in lines(drawn, panel) if len(x) == 3]
        for job in measure.JOBS:
            losses = jobs.loss.sel(job=job)
            trained = losses.sel(arm=instead).values - losses.sel(arm="whole").values
            for wanted in (trained, jobs.taken.sel(job=job, part=part).values):
                assert any(np.allclose(x, wanted) for x in rows)


def test_every_seed_of_every_substitute_is_drawn():
    instead = drawn_values(("accuracy", "loss"), job=("table", "text"), arm=measure.FOUR)
    drawn = figures.plot_instead(instead)
    for panel, (job, values) in enumerate((("table", "accuracy"), ("text", "loss"))):
        dots = [x for x, _ in lines(drawn, panel) if len(x) == 3]
        wanted = [instead[values].sel(job=job, arm=arm).values for arm in measure.FOUR]
        np.testing.assert_allclose(dots, wanted)


def test_activations_are_drawn_as_they_are():
    drawn = figures.plot_activations()
    relu = next(y for x, y in lines(drawn, 0) if len(x) == 800)
    assert relu.min() == 0
    assert {float(v) for v in lines(drawn, 1)[0][1]} == {0.0, 1.0}
